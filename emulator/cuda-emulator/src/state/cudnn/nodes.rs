//! Operations of graphs that have several: functions of tensors, and their checks.

use super::{
    convolution::Tensor,
    status::{CudnnResult, CudnnStatus},
};
use crate::state::LibraryError;
use std::{fmt, sync::Arc};

/// Kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NodeKind {
    /// Function of up to three tensors, element by element.
    Pointwise,
    /// Products of matrices in the last two dimensions.
    Product,
    /// Reduction along the dimensions that are 1 in the result.
    Reduction,
    /// View with other dimensions and strides.
    Reshape,
}

impl fmt::Display for NodeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NodeKind::Pointwise => "pointwise operation",
            NodeKind::Product => "matrix product",
            NodeKind::Reduction => "reduction",
            NodeKind::Reshape => "reshape",
        })
    }
}

/// Finalised parameters of an operation.
pub(crate) struct Rule {
    /// Function (`cudnnPointwiseMode_t`) or reduction (`cudnnReduceTensorOp_t`), else 0.
    pub(super) mode: i64,
    /// Axis of an index.
    pub(super) axis: i64,
}

/// Functions that are emulated (`cudnnPointwiseMode_t`).
pub(super) mod mode {
    pub(in super::super) const ADD: i64 = 0;
    pub(in super::super) const MULTIPLY: i64 = 1;
    pub(in super::super) const DIVIDE: i64 = 6;
    pub(in super::super) const SUBTRACT: i64 = 9;
    pub(in super::super) const EXPONENTIAL: i64 = 13;
    pub(in super::super) const LOGARITHM: i64 = 15;
    pub(in super::super) const IDENTITY: i64 = 21;
    pub(in super::super) const AT_LEAST: i64 = 303;
    pub(in super::super) const INDEX: i64 = 501;
    pub(in super::super) const SELECT: i64 = 601;
}

/// Reductions that are emulated (`cudnnReduceTensorOp_t`).
pub(super) mod reduction {
    pub(in super::super) const SUM: i64 = 0;
    pub(in super::super) const MAXIMUM: i64 = 3;
}

/// Finalised operation.
pub(crate) struct Node {
    /// Kind.
    pub(super) kind: NodeKind,
    /// Function or reduction, else 0.
    pub(super) mode: i64,
    /// Axis of an index.
    pub(super) axis: i64,
    /// Tensors that are read.
    pub(super) inputs: Vec<Arc<Tensor>>,
    /// Tensor that is written.
    pub(super) output: Arc<Tensor>,
}

impl Node {
    /// Returns the number of inputs of a function.
    pub(super) fn inputs_of(mode: i64) -> usize {
        match mode {
            mode::EXPONENTIAL | mode::LOGARITHM | mode::IDENTITY | mode::INDEX => 1,
            mode::SELECT => 3,
            _ => 2,
        }
    }

    /// Checks that the shapes of the tensors fit together, as far as the real library does.
    ///
    /// # Errors
    /// `BAD_PARAM` with a description.
    pub(super) fn check(&self) -> CudnnResult<()> {
        let wrong = |text: String| Err(LibraryError::misuse(CudnnStatus::BAD_PARAM, text));
        let (x, y) = (&self.inputs[0].dimensions, &self.output.dimensions);
        let elements = |sizes: &[i64]| sizes.iter().product::<i64>();
        match self.kind {
            NodeKind::Product => {
                let w = &self.inputs[1].dimensions;
                let fits = |x: &[i64], w: &[i64], y: &[i64]| match (x, w, y) {
                    ([a @ .., m, k], [b @ .., depth, n], [c @ .., rows, columns]) => {
                        (a, b, k, m, n) == (c, c, depth, rows, columns)
                    }
                    _ => false,
                };
                if !fits(x, w, y) {
                    return wrong(format!("a product of {x:?} and {w:?} to {y:?}"));
                }
            }
            NodeKind::Reduction => {
                let divides = |(x, y): (&i64, &i64)| *y > 0 && x % y == 0;
                if x.len() != y.len() || !x.iter().zip(y).all(divides) {
                    return wrong(format!("a reduction of {x:?} to {y:?}"));
                }
            }
            NodeKind::Reshape if elements(x) != elements(y) => {
                return wrong(format!("a reshape of {x:?} to {y:?}"));
            }
            NodeKind::Reshape | NodeKind::Pointwise => {}
        }
        Ok(())
    }
}

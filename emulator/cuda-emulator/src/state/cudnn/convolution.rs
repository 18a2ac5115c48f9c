//! Shapes of tensors and convolutions, and their checks.

use super::{
    rounding::DataType,
    status::{CudnnResult, CudnnStatus},
};
use crate::state::LibraryError;
use std::{fmt, ops::Range};

/// Pass of a convolution.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pass {
    /// Computes the output.
    Forward,
    /// Computes the gradient with respect to the input.
    Data,
    /// Computes the gradient with respect to the filter.
    Filter,
}

impl fmt::Display for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pass::Forward => "forward",
            Pass::Data => "data_gradient",
            Pass::Filter => "filter_gradient",
        })
    }
}

/// Finalised tensor.
pub(crate) struct Tensor {
    /// Number of the element type.
    pub(super) data_type: i64,
    /// Number of elements along each dimension.
    pub(super) dimensions: Vec<i64>,
    /// Distance of neighbours along each dimension, in elements.
    pub(super) strides: Vec<i64>,
    /// Number by which a variant pack gives its address.
    pub(crate) id: i64,
    /// Alignment of the address in bytes.
    pub(crate) alignment: i64,
    /// Whether it is an intermediate result without an address.
    pub(super) is_virtual: bool,
    /// Whether it is a number in host memory, whose address a variant pack gives.
    pub(crate) is_number: bool,
}

impl Tensor {
    /// Returns the range of the tensor at an address.
    pub(crate) fn range(&self, address: u64) -> Range<u64> {
        let data_type = DataType::from_number(self.data_type).unwrap_or(DataType::F32);
        address..address + self.span(data_type)
    }

    /// Returns the number of bytes from the first to the end of the last element.
    pub(super) fn span(&self, data_type: DataType) -> u64 {
        let last: i64 =
            self.dimensions.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum();
        (last as u64 + 1) * data_type.bytes() as u64
    }
}

/// Finalised parameters of a convolution, with a value for each spatial dimension.
pub(crate) struct Parameters {
    /// Number of the type in which products are added.
    pub(super) compute_type: i64,
    /// Whether it is a mathematical convolution, which flips the filter, and no cross-correlation.
    pub(super) flipped: bool,
    /// Padding before the first element.
    pub(super) before: Vec<i64>,
    /// Padding after the last element.
    pub(super) after: Vec<i64>,
    /// Strides of the window.
    pub(super) strides: Vec<i64>,
    /// Distances of neighbouring elements of the window.
    pub(super) dilations: Vec<i64>,
}

/// Finalised operation, which is a graph of its own.
pub(crate) struct Operation {
    /// Pass.
    pub(crate) pass: Pass,
    /// Input, filter and output, or their gradients.
    pub(crate) tensors: [std::sync::Arc<Tensor>; 3],
    /// Parameters of the convolution.
    pub(super) parameters: std::sync::Arc<Parameters>,
    /// Factor of the result.
    pub(super) alpha: f64,
    /// Factor of the previous contents of the result.
    pub(super) beta: f64,
}

impl Operation {
    /// Checks that the shapes of the tensors and the parameters fit together.
    ///
    /// # Errors
    /// `BAD_PARAM` with a description of the first difference.
    pub(super) fn check(&self) -> CudnnResult<()> {
        let wrong = |text: String| Err(LibraryError::misuse(CudnnStatus::BAD_PARAM, text));
        let [x, w, y] = self.tensors.each_ref().map(|tensor| &tensor.dimensions);
        let spatial = self.parameters.strides.len();
        if [x, w, y].iter().any(|sizes| sizes.len() != spatial + 2) {
            return wrong(format!("tensors {x:?}, {w:?} and {y:?} with {spatial} spatial dimensions"));
        }
        if [x, w, y].iter().any(|sizes| sizes.contains(&0)) {
            return wrong(format!("a dimension of 0 in {x:?}, {w:?} or {y:?}"));
        }
        if x[0] != y[0] {
            return wrong(format!("batches of {} and {}", x[0], y[0]));
        }
        if w[0] != y[1] {
            return wrong(format!("{} filters and {} output channels", w[0], y[1]));
        }
        if x[1] % w[1] != 0 || w[0] % (x[1] / w[1]) != 0 {
            return wrong(format!("{} input channels, filters {w:?}", x[1]));
        }
        let Parameters { before, after, strides, dilations, .. } = &*self.parameters;
        for axis in 0..spatial {
            let room = x[axis + 2] + before[axis] + after[axis] - dilations[axis] * (w[axis + 2] - 1) - 1;
            if room < 0 || room / strides[axis] + 1 != y[axis + 2] {
                return wrong(format!(
                    "an output of {} from an input of {}, a window of {}, padding {} and {}, stride {}, \
                     dilation {}",
                    y[axis + 2],
                    x[axis + 2],
                    w[axis + 2],
                    before[axis],
                    after[axis],
                    strides[axis],
                    dilations[axis]
                ));
            }
        }
        Ok(())
    }

    /// Returns the convolution as it is computed, or `None` if no engine supports it: if it is not
    /// two-dimensional, has virtual tensors, several element types, types that are not emulated, or
    /// strides of 0.
    pub(super) fn problem(&self) -> Option<Problem> {
        let [x, w, y] = &self.tensors;
        let data_type = DataType::from_number(x.data_type)?;
        let is_simple = |tensor: &Tensor| {
            let spread = tensor.dimensions.iter().zip(&tensor.strides);
            !tensor.is_virtual
                && !tensor.is_number
                && tensor.data_type == x.data_type
                && spread.into_iter().all(|(size, stride)| *stride > 0 || *size == 1)
        };
        if self.parameters.compute_type != 0 || self.parameters.strides.len() != 2 {
            return None;
        }
        if ![x, w, y].iter().all(|tensor| is_simple(tensor)) {
            return None;
        }
        let layout = |tensor: &Tensor| TensorLayout {
            dimensions: std::array::from_fn(|axis| tensor.dimensions[axis] as usize),
            strides: std::array::from_fn(|axis| tensor.strides[axis] as usize),
            bytes: tensor.span(data_type),
        };
        let pair = |values: &[i64]| [values[0] as usize, values[1] as usize];
        Some(Problem {
            pass: self.pass,
            data_type,
            tensors: [layout(x), layout(w), layout(y)],
            groups: (x.dimensions[1] / w.dimensions[1]) as usize,
            padding: pair(&self.parameters.before),
            stride: pair(&self.parameters.strides),
            dilation: pair(&self.parameters.dilations),
            flipped: self.parameters.flipped,
            alpha: self.alpha as f32,
            beta: self.beta as f32,
        })
    }
}

/// Layout of a tensor with four dimensions: batch, channels, height and width, or for a filter its
/// number, channels, height and width.
#[derive(Clone)]
pub(crate) struct TensorLayout {
    /// Number of elements along each dimension.
    pub(super) dimensions: [usize; 4],
    /// Distance of neighbours along each dimension, in elements.
    pub(super) strides: [usize; 4],
    /// Number of bytes from the first to the end of the last element.
    pub(super) bytes: u64,
}

/// Two-dimensional convolution that engines compute.
#[derive(Clone)]
pub(crate) struct Problem {
    /// Pass.
    pub(crate) pass: Pass,
    /// Element type of all tensors.
    pub(super) data_type: DataType,
    /// Input, filter and output.
    pub(super) tensors: [TensorLayout; 3],
    /// Number of groups.
    pub(super) groups: usize,
    /// Padding above and left of the input.
    pub(super) padding: [usize; 2],
    /// Vertical and horizontal stride of the window.
    pub(super) stride: [usize; 2],
    /// Vertical and horizontal dilation of the window.
    pub(super) dilation: [usize; 2],
    /// Whether the filter is flipped.
    pub(super) flipped: bool,
    /// Factor of the result.
    pub(super) alpha: f32,
    /// Factor of the previous contents of the result.
    pub(super) beta: f32,
}

impl Problem {
    /// Returns the index of the tensor that is computed.
    pub(crate) fn output(&self) -> usize {
        match self.pass {
            Pass::Data => 0,
            Pass::Filter => 1,
            Pass::Forward => 2,
        }
    }

    /// Returns whether the previous contents of the result are read.
    pub(crate) fn reads_output(&self) -> bool {
        self.beta != 0.0
    }
}

//! Description of the tensors that a layer owns, and boxes of their elements.

use std::borrow::Cow;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Name and dimensions of a tensor owned by a layer: a learned parameter or a running statistic.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerTensor {
    /// Name within the layer, as in PyTorch: `weight`, `bias`, `running_mean`, `running_var`.
    pub name: Cow<'static, str>,
    /// Dimensions, outermost first. For a convolution's weight: output channels, input channels of
    /// one group, kernel height, kernel width.
    pub dims: Vec<usize>,
}

impl LayerTensor {
    /// Creates a tensor with the given name and dimensions, outermost first.
    #[must_use]
    pub fn new(name: impl Into<Cow<'static, str>>, dims: impl Into<Vec<usize>>) -> Self {
        Self { name: name.into(), dims: dims.into() }
    }

    /// Returns the number of elements of the tensor, or `usize::MAX` if it is larger.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.dims.iter().copied().fold(1, usize::saturating_mul)
    }
}

/// Box of elements of a tensor: a range of each dimension of a row-major view of the whole tensor.
///
/// The tensor of a part holds the elements of its box in row-major order.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorBox {
    /// Dimensions of the view, outermost first. Their product is the number of elements of the
    /// whole tensor.
    pub dims: Vec<usize>,
    /// Range of each dimension.
    pub ranges: Vec<Range<usize>>,
}

impl TensorBox {
    /// Returns the box of all elements of a tensor with the given dimensions.
    #[must_use]
    pub fn whole(dims: impl Into<Vec<usize>>) -> Self {
        let dims = dims.into();
        Self { ranges: dims.iter().map(|&dim| 0..dim).collect(), dims }
    }

    /// Returns the number of elements of the box.
    #[must_use]
    pub fn elements(&self) -> usize {
        self.ranges.iter().map(Range::len).product()
    }

    /// Returns the positions of the box's elements in the whole tensor, as the ranges of
    /// consecutive positions in increasing order, none of them empty. Neighbouring ranges are
    /// joined.
    ///
    /// Complexity: O(ranges returned x dimensions).
    #[must_use]
    pub fn runs(&self) -> Vec<Range<usize>> {
        if self.elements() == 0 {
            return Vec::new();
        }
        // The innermost dimensions that the box covers whole belong to one run with the dimension
        // around them.
        let is_partial = |&dim: &usize| self.ranges[dim] != (0..self.dims[dim]);
        let innermost = (0..self.dims.len()).rev().find(is_partial).unwrap_or_default();
        let Some((range, size)) = self.ranges.get(innermost).zip(self.dims.get(innermost)) else {
            return std::iter::once(0..1).collect();
        };
        let inner: usize = self.dims[innermost + 1..].iter().product();
        let mut starts = vec![0];
        for (range, dim) in self.ranges[..innermost].iter().zip(&self.dims) {
            starts = starts.iter().flat_map(|start| range.clone().map(move |at| start * dim + at)).collect();
        }
        let run = |start: usize| (start * size + range.start) * inner..(start * size + range.end) * inner;
        starts.into_iter().map(run).collect()
    }
}

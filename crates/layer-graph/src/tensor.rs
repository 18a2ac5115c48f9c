//! Description of the tensors that a layer owns.

use std::borrow::Cow;

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

//! Layers split over several ranks by features, channels, heads or positions: the splits that are
//! possible for each layer of a network, and the parts of a split layer, which are layers of
//! another shape.

mod analysis;
mod network;
mod part;
mod view;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::GraphError;

pub use network::NetworkSplits;
pub use part::LayerPart;
pub use view::TensorView;

/// Dimension along which the work of a layer on one sample is divided.
///
/// In JSON and in text, a split is its label, such as `features`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Split {
    /// No dimension: all parts compute the whole layer for the same samples.
    Copies,
    /// Output features or channels of a linear layer, a convolution or an embedding; the heads of
    /// an attention; the features or channels of the inputs of other layers.
    Features,
    /// Input features or channels of a linear layer or a convolution. The sum of the parts' outputs
    /// is the layer's output; the bias belongs to part 0.
    Inputs,
    /// Positions of a sequence. All parts have all parameters, but for those of a position
    /// embedding.
    Positions,
}

impl Split {
    /// All splits.
    pub const ALL: [Self; 4] = [Self::Copies, Self::Features, Self::Inputs, Self::Positions];

    /// Returns the label of the split, as in JSON: `copies`, `features`, `inputs` or
    /// `positions`.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Copies => "copies",
            Self::Features => "features",
            Self::Inputs => "inputs",
            Self::Positions => "positions",
        }
    }
}

impl FromStr for Split {
    type Err = GraphError;

    /// Parses a label.
    ///
    /// # Errors
    /// [`GraphError::UnknownSplit`] if no split has this label.
    fn from_str(label: &str) -> Result<Self, GraphError> {
        let unknown =
            || GraphError::UnknownSplit { name: label.into(), known: Self::ALL.map(Self::label).to_vec() };
        Self::ALL.into_iter().find(|split| split.label() == label).ok_or_else(unknown)
    }
}

/// Division of the work of a layer on one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Division {
    /// Dimension that is divided. Without effect if there is one part.
    pub split: Split,
    /// Number of parts, at least 1.
    pub parts: usize,
}

impl Division {
    /// Division into one part: the layer is not split.
    pub const WHOLE: Self = Self { split: Split::Copies, parts: 1 };

    /// Returns whether there is one part.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.parts == 1
    }
}

impl fmt::Display for Division {
    /// Writes the number of parts and the label of the split: `8 by features`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.parts, self.split.label())
    }
}

impl Default for Division {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// Relation of the parts of a tensor to its value. With one part, all of them are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Values {
    /// Each part is the whole tensor.
    Copies,
    /// Each part is a range of the units of the tensor's [`TensorView`].
    Ranges,
    /// Each part has the shape of the whole tensor. Their sum is its value.
    Addends,
    /// Each part is a range of the positions of the tensor's [`TensorView`].
    Positions,
}

impl Values {
    /// Returns the values once addends are replaced by their sum, of which all parts have copies.
    #[must_use]
    pub fn summed(self) -> Self {
        if self == Self::Addends { Self::Copies } else { self }
    }
}

/// Values of the tensors of a split layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SplitValues {
    /// Values of every input that the parts read.
    pub input: Values,
    /// Values of the gradient of every input, as the parts compute it.
    pub input_gradient: Values,
    /// Values of the output, and of the gradient of the output that the parts read.
    pub output: Values,
    /// Values of the gradient of the parameters, as the parts compute it.
    pub parameter_gradient: Values,
}

impl SplitValues {
    /// Values of the tensors of a layer with one part.
    pub const WHOLE: Self = Self::new([Values::Copies; 3], Values::Copies);

    /// Creates the values of a layer from those of its input, the gradient of its input and its
    /// output, and those of the gradient of its parameters.
    pub(crate) const fn new(
        [input, input_gradient, output]: [Values; 3],
        parameter_gradient: Values,
    ) -> Self {
        Self { input, input_gradient, output, parameter_gradient }
    }
}

//! Hyper-parameters of the layers that move a sample's elements and compute nothing.

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Hyper-parameters of a reshape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    /// The new shape, of as many elements.
    pub output: Shape,
}

/// Hyper-parameters of a permutation of dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permute {
    /// For each dimension of the output the dimension of the input that it is.
    pub order: Vec<usize>,
}

/// Hyper-parameters of a selection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// The position along the outermost dimension.
    pub index: usize,
}

//! Hyper-parameters of the layers that move elements without computing.

use serde::{Deserialize, Serialize};

use crate::Shape;

/// Hyper-parameters of a reshape.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reshape {
    /// New shape of a sample, with the same number of elements.
    pub output: Shape,
}

/// Hyper-parameters of a permutation of the dimensions of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Permute {
    /// For each dimension of the output, the dimension of the input it comes from. Dimensions count
    /// from 0, outermost first, without the batch.
    pub order: Vec<usize>,
}

/// Hyper-parameters of the selection of one position of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Select {
    /// Position along the outermost dimension, from 0.
    pub index: usize,
}

/// Hyper-parameters of the selection of a range of positions of a sample.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// First position along the outermost dimension, from 0.
    pub start: usize,
    /// Number of positions.
    pub length: usize,
}

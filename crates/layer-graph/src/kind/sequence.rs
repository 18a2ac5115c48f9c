//! Hyper-parameters of the layers that work on feature vectors and on sequences of them. The
//! vectors of a sequence are its positions.

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a linear layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Number of output features: the innermost dimension of the output.
    pub out_features: usize,
    /// Whether a bias is added to each output feature.
    pub bias: bool,
}

impl Linear {
    /// Creates a linear layer with the given number of output features and a bias.
    #[must_use]
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
    }

    /// Removes the bias.
    #[must_use]
    pub fn without_bias(mut self) -> Self {
        self.bias = false;
        self
    }
}

/// Hyper-parameters of a layer normalisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerNorm {
    /// Term added to the variance before the square root.
    pub epsilon: f64,
}

impl Default for LayerNorm {
    /// Returns epsilon 1e-5, as in PyTorch.
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

/// Hyper-parameters of a root-mean-square normalisation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RmsNorm {
    /// Term added to the mean of the squares before the square root.
    pub epsilon: f64,
    /// Whether a feature is multiplied by 1 plus its weight, as in Gemma, instead of its weight.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unit_offset: bool,
}

impl RmsNorm {
    /// Creates a normalisation that multiplies each feature by its weight.
    #[must_use]
    pub fn new(epsilon: f64) -> Self {
        Self { epsilon, unit_offset: false }
    }
}

/// Hyper-parameters of a token embedding, which maps each token id to a learned vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of distinct tokens, at least 1. Token ids are less than it.
    pub vocabulary: usize,
    /// Number of features of a token's vector.
    pub features: usize,
    /// Token whose vector gets no gradient from this layer, such as one that fills sequences up to
    /// a common length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<usize>,
}

impl Embedding {
    /// Creates an embedding that learns the vectors of all tokens.
    #[must_use]
    pub fn new(vocabulary: usize, features: usize) -> Self {
        Self { vocabulary, features, padding: None }
    }
}

/// Hyper-parameters of a learned position embedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionEmbedding {
    /// Number of learned vectors. Inputs may be shorter.
    pub positions: usize,
    /// Index of the vector that is added to the first position, such as 2 in OPT.
    #[serde(default, skip_serializing_if = "super::is_zero")]
    pub first: usize,
    /// Whether that vector is added to all positions, as for the token types of BERT if all tokens
    /// have the same type. Otherwise each position has the next vector.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub repeated: bool,
}

impl PositionEmbedding {
    /// Creates an embedding of `positions` vectors, of which the first one is added to the first
    /// position of a sequence, and so on.
    #[must_use]
    pub fn new(positions: usize) -> Self {
        Self { positions, first: 0, repeated: false }
    }

    /// Returns the number of vectors that are added to a sequence of `positions` positions.
    #[must_use]
    pub fn used(&self, positions: usize) -> usize {
        if self.repeated { 1 } else { positions }
    }
}

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

/// Hyper-parameters of a token embedding, which maps each token id to a learned vector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of distinct tokens, at least 1. Token ids are less than it.
    pub vocabulary: usize,
    /// Number of features of a token's vector.
    pub features: usize,
}

/// Hyper-parameters of a learned position embedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionEmbedding {
    /// Number of learned position vectors: the maximum length of a sequence. Inputs may be shorter.
    pub positions: usize,
}

/// Hyper-parameters of a multi-head attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultiHeadAttention {
    /// Number of heads. Divides the number of output features.
    pub heads: usize,
    /// Whether each position attends only to itself and earlier positions.
    pub causal: bool,
}

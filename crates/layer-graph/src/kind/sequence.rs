//! Hyper-parameters of the layers that work on vectors of features and on sequences of them.

use serde::{Deserialize, Serialize};

/// Hyper-parameters of a linear layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Features of the output.
    pub out_features: usize,
    /// Whether a bias is added.
    pub bias: bool,
}

impl Linear {
    /// A linear layer with a bias.
    #[must_use]
    pub fn new(out_features: usize) -> Self {
        Self { out_features, bias: true }
    }

    /// Leaves the bias out.
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
    /// Added to the variance before its square root.
    pub epsilon: f64,
}

impl Default for LayerNorm {
    /// Epsilon 1e-5, as in PyTorch.
    fn default() -> Self {
        Self { epsilon: 1e-5 }
    }
}

/// Hyper-parameters of an embedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embedding {
    /// Number of different tokens.
    pub vocabulary: usize,
    /// Features that a token becomes.
    pub features: usize,
}

/// Hyper-parameters of a learned position embedding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PositionEmbedding {
    /// The longest sequence that there are parameters for; the input may be shorter.
    pub positions: usize,
}

/// Hyper-parameters of an attention.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MultiHeadAttention {
    /// Number of heads; divides the number of features.
    pub heads: usize,
    /// Whether a position sees only itself and those before it.
    pub causal: bool,
}

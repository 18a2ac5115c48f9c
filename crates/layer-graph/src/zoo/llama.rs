//! Llama 3 (Grattafiori et al., 2024), from the configuration published with its weights.

use crate::hf::from_config;
use crate::{GraphError, LayerGraph};

/// Number of positions of a sample. The network can read up to 8192.
const POSITIONS: usize = 2048;

/// Configuration of Llama 3 with 8 billion parameters.
const LLAMA_3_8B: &str = r#"{
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}"#;

/// Builds Llama 3 8B under the given name. Its configuration is valid, so that no error is
/// returned.
pub(super) fn llama_3_8b(name: &str) -> Result<LayerGraph, GraphError> {
    Ok(from_config(name, LLAMA_3_8B, Some(POSITIONS))?.network)
}

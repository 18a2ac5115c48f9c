//! Language models from the `config.json` of Hugging Face's `transformers`: the network for
//! training on sequences of a length, with the labels that are the next token at each position.
//!
//! Families, by `model_type`: `llama`, `mistral`, `qwen2` and `gpt2`. Layers have the names and the
//! order that `deeppool.tracing.trace` gives those of the same network in PyTorch, and the same
//! parameters. Neither weights nor Python are needed.
//!
//! ```
//! let config = r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
//!     "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
//!     "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}"#;
//! let llama = layer_graph::hf::from_config("llama-3-8b", config, 2048)?;
//! assert_eq!(llama.network.parameter_count(), 8_030_261_248);
//! # Ok::<(), layer_graph::GraphError>(())
//! ```

mod gpt2;
mod llama;

use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{GraphError, LayerGraph, LayerKind};

/// Families of networks that can be read, by `model_type`.
const FAMILIES: [&str; 4] = ["gpt2", "llama", "mistral", "qwen2"];

/// Maximum number of blocks of a network.
const MAX_BLOCKS: usize = 10_000;

/// Network of a configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Configured {
    /// Network for training.
    pub network: LayerGraph,
    /// Parts of the configuration that the network lacks, each in a few words, such as `cross
    /// attention`.
    pub left_out: Vec<String>,
}

/// Builds the network of a `config.json` under the given name, for sequences of `positions` tokens.
///
/// # Errors
/// - [`GraphError::Config`] if the text is not JSON, lacks a field of its family, is of another
///   family, or has fewer positions.
/// - The error of [`LayerGraph::add`] if its numbers do not fit each other.
pub fn from_config(name: &str, config: &str, positions: usize) -> Result<Configured, GraphError> {
    #[derive(serde::Deserialize)]
    struct Family {
        model_type: String,
        architectures: Option<Vec<String>>,
    }
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let config = config.strip_prefix('\u{feff}').unwrap_or(config);
    let Family { model_type, architectures } = parse(config)?;
    let of_llama = |family| llama::build(name, &parse(config)?, positions, family);
    let mut configured = match &*model_type {
        "gpt2" => gpt2::build(name, &parse(config)?, positions)?,
        "llama" => of_llama(llama::Family::Llama)?,
        "mistral" => of_llama(llama::Family::Mistral)?,
        "qwen2" => of_llama(llama::Family::Qwen2)?,
        other => {
            let known = FAMILIES.join(", ");
            return Err(invalid(format!(
                "networks of the family `{other}` cannot be read; known families: {known}"
            )));
        }
    };
    // Networks without a head end as these, too.
    let known = ["ForCausalLM", "LMHeadModel", "Model"];
    let is_other = |name: &&String| !known.iter().any(|known| name.ends_with(known));
    let others = architectures.iter().flatten().filter(is_other);
    configured.left_out.extend(others.map(|name| format!("the last layers of {name}")));
    Ok(configured)
}

/// Returns the name of the network of a file: that of the file without its extension, or of the
/// folder of a `config.json`.
#[must_use]
pub fn network_name(path: &Path) -> String {
    let of_file = path.file_stem().filter(|&stem| stem != "config");
    let name = of_file.or_else(|| path.parent()?.file_name());
    name.map_or("config".into(), |name| name.to_string_lossy().into_owned())
}

fn invalid(problem: impl Into<String>) -> GraphError {
    GraphError::Config(problem.into())
}

fn parse<T: DeserializeOwned>(config: &str) -> Result<T, GraphError> {
    let deserializer = &mut serde_json::Deserializer::from_str(config);
    let parsed = serde_path_to_error::deserialize(&mut *deserializer).map_err(|error| {
        let path = error.path().to_string();
        let place = if path == "." { String::new() } else { format!("at `{path}`: ") };
        invalid(format!("{place}{}", error.inner()))
    })?;
    deserializer.end().map_err(|error| invalid(error.to_string()))?;
    Ok(parsed)
}

/// Checks the numbers of positions and of blocks.
fn check(positions: usize, max_positions: Option<usize>, blocks: usize) -> Result<(), GraphError> {
    if let Some(max) = max_positions.filter(|&max| positions > max) {
        return Err(invalid(format!("sequences of {positions} tokens are longer than its {max} positions")));
    }
    if blocks > MAX_BLOCKS {
        return Err(invalid(format!("{blocks} blocks are more than {MAX_BLOCKS}")));
    }
    Ok(())
}

/// Returns the kind of an activation by its name in `transformers`.
fn activation(name: &str) -> Result<LayerKind, GraphError> {
    Ok(match name {
        "silu" | "swish" => LayerKind::Silu,
        "gelu" => LayerKind::Gelu,
        "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => LayerKind::GeluTanh,
        "quick_gelu" => LayerKind::QuickGelu,
        "relu" => LayerKind::Relu,
        "tanh" => LayerKind::Tanh,
        other => return Err(invalid(format!("the activation `{other}` has no kind of layer"))),
    })
}

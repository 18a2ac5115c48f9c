//! Networks from the `config.json` of Hugging Face's `transformers`, for training on sequences of a
//! given length or on images.
//!
//! Families, by `model_type`:
//! - language models, whose labels are the next token at each position: `llama`, `mistral`,
//!   `mixtral`, `qwen2`, `gemma`, `gpt2`, `gpt_neo`, `gpt_neox` and `opt`
//! - `bert` and `roberta`, with the last layers of the class in `architectures`: those that
//!   classify sequences or tokens, or predict the words at all positions
//! - `t5`: with the decoder for `T5ForConditionalGeneration`, whose second input
//!   `decoder_input_ids` has as many tokens, otherwise the encoder with scores of the classes of
//!   each token
//! - `vit`, which classifies images
//!
//! Layers have the names and the order that `deeppool.tracing.trace` gives those of the same
//! network in PyTorch, and the same parameters. Neither weights nor Python are needed.
//!
//! ```
//! let config = r#"{"model_type": "llama", "vocab_size": 128256, "hidden_size": 4096,
//!     "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
//!     "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}"#;
//! let llama = layer_graph::hf::from_config("llama-3-8b", config, Some(2048))?;
//! assert_eq!(llama.network.parameter_count(), 8_030_261_248);
//! # Ok::<(), layer_graph::GraphError>(())
//! ```

mod bert;
mod gpt2;
mod gpt_neo;
mod gpt_neox;
mod llama;
mod opt;
mod rotation;
mod t5;
mod vit;

use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::{Dropout, GraphError, LayerGraph, LayerId, LayerKind, Linear};

/// Families of networks that can be read, by `model_type`.
const FAMILIES: [&str; 13] = [
    "bert", "gemma", "gpt2", "gpt_neo", "gpt_neox", "llama", "mistral", "mixtral", "opt", "qwen2", "roberta",
    "t5", "vit",
];

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

/// Builds the network of a `config.json` under the given name. `positions` is the number of tokens
/// of a sequence, or `None` for the images of a `vit`, whose size is in the configuration.
///
/// # Errors
/// - [`GraphError::Config`] if the text is not JSON, lacks a field of its family, is of another
///   family, has fewer positions, or if `positions` is `None` for sequences or a number for images.
/// - The error of [`LayerGraph::add`] if its numbers do not fit each other.
pub fn from_config(name: &str, config: &str, positions: Option<usize>) -> Result<Configured, GraphError> {
    #[derive(Deserialize)]
    struct Family {
        model_type: String,
        architectures: Option<Vec<String>>,
    }
    // A byte order mark, with which some editors begin a file, is no part of the JSON text.
    let config = config.strip_prefix('\u{feff}').unwrap_or(config);
    let Family { model_type, architectures } = parse(config)?;
    let architectures = architectures.unwrap_or_default();
    let class = architectures.first().map(String::as_str);
    let tokens = || {
        positions.ok_or_else(|| invalid(format!("`{model_type}` needs the number of tokens of a sequence")))
    };
    let of_llama = |family| llama::build(name, &parse(config)?, tokens()?, family);
    let of_bert = |family| bert::build(name, &parse(config)?, tokens()?, (family, class), &parse(config)?);
    let mut configured = match &*model_type {
        "bert" => of_bert(bert::Family::Bert)?,
        "roberta" => of_bert(bert::Family::Roberta)?,
        "gemma" => of_llama(llama::Family::Gemma)?,
        "gpt2" => gpt2::build(name, &parse(config)?, tokens()?)?,
        "gpt_neox" => gpt_neox::build(name, &parse(config)?, tokens()?)?,
        "gpt_neo" => gpt_neo::build(name, &parse(config)?, tokens()?)?,
        "llama" => of_llama(llama::Family::Llama)?,
        "mistral" => of_llama(llama::Family::Mistral)?,
        "mixtral" => of_llama(llama::Family::Mixtral)?,
        "opt" => opt::build(name, &parse(config)?, tokens()?)?,
        "qwen2" => of_llama(llama::Family::Qwen2)?,
        "t5" => t5::build(name, &parse(config)?, tokens()?, class, &parse(config)?)?,
        "vit" if positions.is_some() => {
            return Err(invalid("`vit` reads images: leave out the number of tokens of a sequence"));
        }
        "vit" => vit::build(name, &parse(config)?, &parse(config)?)?,
        other => {
            let known = FAMILIES.join(", ");
            return Err(invalid(format!(
                "networks of the family `{other}` cannot be read; known families: {known}"
            )));
        }
    };
    // Networks without a head end as those with it.
    let is_known = |name: &str| match &*model_type {
        "bert" => bert::Family::Bert.knows(name),
        "roberta" => bert::Family::Roberta.knows(name),
        "t5" => [t5::CLASS, t5::WHOLE, "T5EncoderModel"].contains(&name),
        "vit" => vit::CLASSES.contains(&name) || name == "ViTModel",
        _ => ["ForCausalLM", "LMHeadModel", "Model"].iter().any(|known| name.ends_with(known)),
    };
    let others = architectures.iter().filter(|name| !is_known(name));
    let what = if model_type == "t5" { "decoder or last layers" } else { "last layers" };
    configured.left_out.extend(others.map(|name| format!("the {what} of {name}")));
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

/// Number whose default, without the field, is not that of null.
#[derive(Clone, Copy, Default)]
enum Field<T> {
    #[default]
    Missing,
    Null,
    Number(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Field<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Option::deserialize(deserializer)?;
        Ok(number.map_or(Self::Null, Self::Number))
    }
}

impl<T> Field<T> {
    /// Returns the number, or the default without the field.
    fn or(self, default: Option<T>) -> Option<T> {
        match self {
            Self::Number(number) => Some(number),
            Self::Null => None,
            Self::Missing => default,
        }
    }
}

/// Fields that determine the classes of a network that classifies.
#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "id2label")]
    names: Option<serde_json::Map<String, serde_json::Value>>,
    /// Number of classes, for a file without their names.
    #[serde(rename = "num_labels")]
    number: Option<usize>,
    problem_type: Option<String>,
}

impl Labels {
    /// Returns the number of classes.
    fn count(&self) -> usize {
        self.names.as_ref().map(serde_json::Map::len).or(self.number).unwrap_or(2)
    }

    /// Returns a description of the loss if it is not that of one class for each sample.
    fn other_loss(&self) -> Option<String> {
        let problem = self.problem_type.as_ref().filter(|&problem| problem != "single_label_classification");
        problem.map(|problem| format!("the loss of {problem}"))
    }
}

fn yes() -> bool {
    true
}

fn tenth() -> f64 {
    0.1
}

/// Checks the numbers of positions and of blocks.
fn check(positions: usize, max_positions: Option<usize>, blocks: usize) -> Result<(), GraphError> {
    if let Some(max) = max_positions.filter(|&max| positions > max) {
        return Err(invalid(format!("sequences of {positions} tokens are longer than its {max} positions")));
    }
    check_blocks(blocks)
}

fn check_blocks(blocks: usize) -> Result<(), GraphError> {
    if blocks > MAX_BLOCKS {
        return Err(invalid(format!("{blocks} blocks are more than {MAX_BLOCKS}")));
    }
    Ok(())
}

/// Returns the padding token of a vocabulary. A negative number counts from its end.
fn padding(token: Option<i64>, vocabulary: usize) -> Result<Option<usize>, GraphError> {
    let Some(token) = token else { return Ok(None) };
    let size = usize::try_from(token.unsigned_abs()).unwrap_or(usize::MAX);
    let padding = if token < 0 { vocabulary.checked_sub(size) } else { Some(size) };
    let padding = padding.filter(|&padding| padding < vocabulary);
    padding.map(Some).ok_or_else(|| invalid(format!("pad_token_id {token} is not in {vocabulary} tokens")))
}

/// Adds the scores of the next token at each position, without biases, and the loss. The weight of
/// the scores is that of the embedding `tokens` if `is_tied`.
fn add_head(
    net: &mut LayerGraph,
    vocabulary: usize,
    (tokens, is_tied): (LayerId, bool),
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let head = Linear::new(vocabulary).without_bias();
    let scores = if is_tied {
        net.add_tied("lm_head", head, [input], tokens)?
    } else {
        net.add("lm_head", head, [input])?
    };
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores])
}

/// Returns a dropout, unless its probability is 0.
fn dropout(probability: f64) -> Option<LayerKind> {
    (probability != 0.0).then(|| Dropout::new(probability).into())
}

/// Adds a dropout of `x`, unless its probability is 0, and returns the last layer.
fn add_dropout(
    net: &mut LayerGraph,
    name: impl Into<String>,
    probability: f64,
    x: LayerId,
) -> Result<LayerId, GraphError> {
    match dropout(probability) {
        Some(dropout) => net.add(name, dropout, [x]),
        None => Ok(x),
    }
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

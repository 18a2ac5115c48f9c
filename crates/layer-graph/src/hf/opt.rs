//! OPT (Zhang et al., 2022).

use serde::Deserialize;

use super::{Configured, Field, activation, add_head, check, dropout, invalid, padding, tenth, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Shape,
};

/// Index of the vector that is added to the first position.
const FIRST_POSITION: usize = 2;

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the options of the file")]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    ffn_dim: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    max_position_embeddings: usize,
    /// Number of features of the embedding, if it is not that of the blocks.
    word_embed_proj_dim: Option<usize>,
    #[serde(default = "relu")]
    activation_function: String,
    #[serde(default = "tenth")]
    dropout: f64,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default)]
    layerdrop: f64,
    #[serde(default = "yes")]
    do_layer_norm_before: bool,
    #[serde(default, rename = "_remove_final_layer_norm")]
    remove_final_layer_norm: bool,
    #[serde(default = "yes")]
    enable_bias: bool,
    #[serde(default = "yes")]
    layer_norm_elementwise_affine: bool,
    #[serde(default)]
    pad_token_id: Field<i64>,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn relu() -> String {
    "relu".into()
}

/// Builds the network.
pub(super) fn build(name: &str, config: &Config, positions: usize) -> Result<Configured, GraphError> {
    check(positions, Some(config.max_position_embeddings), config.num_hidden_layers)?;
    if !config.layer_norm_elementwise_affine {
        return Err(invalid("layer normalisations without parameters have no kind of layer"));
    }
    let features = config.hidden_size;
    let embedded = config.word_embed_proj_dim.unwrap_or(features);
    let padding = padding(config.pad_token_id.or(Some(1)), config.vocab_size)?;
    let projection = |out_features| Linear::new(out_features).without_bias();
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = Embedding { padding, ..Embedding::new(config.vocab_size, embedded) };
    let tokens = net.add("model.decoder.embed_tokens", tokens, [net.input()])?;
    let mut x = tokens;
    if embedded != features {
        x = net.add("model.decoder.project_in", projection(features), [x])?;
    }
    let vectors = config.max_position_embeddings.saturating_add(FIRST_POSITION);
    let table = PositionEmbedding { first: FIRST_POSITION, ..PositionEmbedding::new(vectors) };
    x = net.add("model.decoder.embed_positions.weight", table, [x])?;
    for block in 0..config.num_hidden_layers {
        x = add_block(&mut net, config, &format!("model.decoder.layers.{block}"), x)?;
    }
    if config.do_layer_norm_before && !config.remove_final_layer_norm {
        x = net.add("model.decoder.final_layer_norm", LayerNorm::default(), [x])?;
    }
    if embedded != features {
        x = net.add("model.decoder.project_out", projection(embedded), [x])?;
    }
    add_head(&mut net, config.vocab_size, (tokens, config.tie_word_embeddings), x)?;
    let layer_dropout = (config.layerdrop > 0.0).then(|| "dropout of whole blocks".into());
    Ok(Configured { network: net, left_out: layer_dropout.into_iter().collect() })
}

/// Adds the layers of a block, and returns the last one.
fn add_block(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let mut then =
        |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
    let linear = |out_features| LayerKind::from(Linear { out_features, bias: config.enable_bias });
    let norm = || LayerKind::from(LayerNorm::default());
    let dropout = dropout(config.dropout);
    let attention = MultiHeadAttention::new(config.num_attention_heads, true);
    let is_first = config.do_layer_norm_before;

    let mut x = input;
    if is_first {
        x = then("self_attn_layer_norm", norm(), &[x])?;
    }
    let queries = then("self_attn.q_proj", linear(config.hidden_size), &[x])?;
    let keys = then("self_attn.k_proj", linear(config.hidden_size), &[x])?;
    let values = then("self_attn.v_proj", linear(config.hidden_size), &[x])?;
    let attention = attention.with_dropout(config.attention_dropout);
    x = then("self_attn", attention.into(), &[queries, keys, values])?;
    x = then("self_attn.out_proj", linear(config.hidden_size), &[x])?;
    if let Some(dropout) = &dropout {
        x = then("dropout", dropout.clone(), &[x])?;
    }
    let mut middle = then("add", LayerKind::Add, &[input, x])?;
    x = middle;
    if is_first {
        x = then("final_layer_norm", norm(), &[x])?;
    } else {
        middle = then("self_attn_layer_norm", norm(), &[x])?;
        x = middle;
    }
    x = then("fc1", linear(config.ffn_dim), &[x])?;
    x = then("activation_fn", activation(&config.activation_function)?, &[x])?;
    x = then("fc2", linear(config.hidden_size), &[x])?;
    if let Some(dropout) = dropout {
        x = then("dropout.2", dropout, &[x])?;
    }
    x = then("add.2", LayerKind::Add, &[middle, x])?;
    if !is_first {
        x = then("final_layer_norm", norm(), &[x])?;
    }
    Ok(x)
}

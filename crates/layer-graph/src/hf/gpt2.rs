//! GPT-2 (Radford et al., 2019).

use serde::Deserialize;

use super::{Configured, activation, add_dropout, add_head, check, dropout, tenth, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Shape,
};

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "the options of the file")]
pub(super) struct Config {
    vocab_size: usize,
    n_embd: usize,
    n_layer: usize,
    n_head: usize,
    n_inner: Option<usize>,
    n_positions: usize,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "tenth")]
    attn_pdrop: f64,
    #[serde(default = "tenth")]
    embd_pdrop: f64,
    #[serde(default = "tenth")]
    resid_pdrop: f64,
    #[serde(default = "yes")]
    scale_attn_weights: bool,
    #[serde(default)]
    scale_attn_by_inverse_layer_idx: bool,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default)]
    add_cross_attention: bool,
}

fn gelu_new() -> String {
    "gelu_new".into()
}

fn epsilon() -> f64 {
    1e-5
}

/// Builds the network.
pub(super) fn build(name: &str, config: &Config, positions: usize) -> Result<Configured, GraphError> {
    check(positions, Some(config.n_positions), config.n_layer)?;
    let features = config.n_embd;
    let activation = activation(&config.activation_function)?;
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = net.add("transformer.wte", Embedding::new(config.vocab_size, features), [net.input()])?;
    let table = PositionEmbedding::new(config.n_positions);
    let mut x = net.add("transformer.wpe.weight", table, [tokens])?;
    x = add_dropout(&mut net, "transformer.drop", config.embd_pdrop, x)?;
    for block in 0..config.n_layer {
        let mut then = |name: &str, kind: LayerKind, inputs: &[LayerId]| {
            net.add(format!("transformer.h.{block}.{name}"), kind, inputs)
        };
        let norm = LayerNorm { epsilon: config.layer_norm_epsilon };
        let residual = dropout(config.resid_pdrop);
        let mut y = then("ln_1", norm.clone().into(), &[x])?;
        y = then("attn.c_attn", Linear::new(features.saturating_mul(3)).into(), &[y])?;
        y = then("attn", attention(config, block).into(), &[y])?;
        y = then("attn.c_proj", Linear::new(features).into(), &[y])?;
        if let Some(dropout) = &residual {
            y = then("attn.resid_dropout", dropout.clone(), &[y])?;
        }
        x = then("add", LayerKind::Add, &[y, x])?;
        y = then("ln_2", norm.into(), &[x])?;
        let hidden = config.n_inner.unwrap_or(features.saturating_mul(4));
        y = then("mlp.c_fc", Linear::new(hidden).into(), &[y])?;
        y = then("mlp.act", activation.clone(), &[y])?;
        y = then("mlp.c_proj", Linear::new(features).into(), &[y])?;
        if let Some(dropout) = &residual {
            y = then("mlp.dropout", dropout.clone(), &[y])?;
        }
        x = then("add.2", LayerKind::Add, &[x, y])?;
    }
    x = net.add("transformer.ln_f", LayerNorm { epsilon: config.layer_norm_epsilon }, [x])?;
    add_head(&mut net, config.vocab_size, (tokens, config.tie_word_embeddings), x)?;
    let cross_attention = config.add_cross_attention.then(|| "cross attention".into());
    Ok(Configured { network: net, left_out: cross_attention.into_iter().collect() })
}

/// Returns the attention of a block. Its products may have another factor than usual.
fn attention(config: &Config, block: usize) -> MultiHeadAttention {
    let attention = MultiHeadAttention::new(config.n_head, true).with_dropout(config.attn_pdrop);
    let width = config.n_embd.checked_div(config.n_head).unwrap_or(1).max(1) as f64;
    let usual = if config.scale_attn_weights { width.powf(-0.5) } else { 1.0 };
    match (config.scale_attn_weights, config.scale_attn_by_inverse_layer_idx) {
        (true, false) => attention,
        (_, true) => attention.scaled_by(usual / (block + 1) as f64),
        (false, false) => attention.scaled_by(1.0),
    }
}

//! GPT-Neo (Black et al., 2021): blocks whose attentions see all earlier positions, or a window.

use serde::Deserialize;

use super::{Configured, activation, add_dropout, add_head, check, invalid, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Shape,
};

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    num_layers: usize,
    num_heads: usize,
    max_position_embeddings: usize,
    intermediate_size: Option<usize>,
    /// Types of the attentions of consecutive blocks, and how many times they are repeated.
    attention_types: Option<Vec<(Vec<String>, usize)>>,
    #[serde(default = "window")]
    window_size: usize,
    #[serde(default = "gelu_new")]
    activation_function: String,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default)]
    embed_dropout: f64,
    #[serde(default)]
    resid_dropout: f64,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
}

fn window() -> usize {
    256
}

fn gelu_new() -> String {
    "gelu_new".into()
}

fn epsilon() -> f64 {
    1e-5
}

impl Config {
    /// Returns whether the attention of each block has a window.
    fn are_local(&self) -> Result<Vec<bool>, GraphError> {
        let default = || vec![(vec!["global".to_owned(), "local".to_owned()], 12)];
        let types = self.attention_types.clone().unwrap_or_else(default);
        let repeated = types.iter().filter(|(names, _)| !names.is_empty());
        let names = repeated.flat_map(|(names, count)| std::iter::repeat_n(names, *count)).flatten();
        let is_local = |name: &String| match &**name {
            "global" => Ok(false),
            "local" => Ok(true),
            other => Err(invalid(format!("the attention `{other}` is neither global nor local"))),
        };
        let found =
            names.take(self.num_layers.saturating_add(1)).map(is_local).collect::<Result<Vec<_>, _>>()?;
        if found.len() != self.num_layers {
            let problem = format!("attention_types are not those of its {} blocks", self.num_layers);
            return Err(invalid(problem));
        }
        Ok(found)
    }

    /// Returns the attention of a block for sequences of `positions` tokens.
    fn attention(&self, is_local: bool, positions: usize) -> MultiHeadAttention {
        let mut attention =
            MultiHeadAttention::new(self.num_heads, true).with_dropout(self.attention_dropout);
        attention.window = Some(self.window_size).filter(|&window| is_local && window < positions);
        // Products are not scaled, which is the default for heads of one feature.
        if self.num_heads == self.hidden_size { attention } else { attention.scaled_by(1.0) }
    }

    fn norm(&self) -> LayerKind {
        LayerNorm { epsilon: self.layer_norm_epsilon }.into()
    }
}

/// Builds the network.
pub(super) fn build(name: &str, config: &Config, positions: usize) -> Result<Configured, GraphError> {
    check(positions, Some(config.max_position_embeddings), config.num_layers)?;
    let features = config.hidden_size;
    let are_local = config.are_local()?;
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = net.add("transformer.wte", Embedding::new(config.vocab_size, features), [net.input()])?;
    let table = PositionEmbedding::new(config.max_position_embeddings);
    let mut x = net.add("transformer.wpe.weight", table, [tokens])?;
    x = add_dropout(&mut net, "transformer.drop", config.embed_dropout, x)?;
    for (block, is_local) in are_local.into_iter().enumerate() {
        let path = format!("transformer.h.{block}");
        let mut then =
            |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
        let normed = then("ln_1", config.norm(), &[x])?;
        let mut project = |part: &str| {
            let kind = Linear::new(features).without_bias();
            then(&format!("attn.attention.{part}_proj"), kind.into(), &[normed])
        };
        let inputs = [project("q")?, project("k")?, project("v")?];
        let mut y = then("attn.attention", config.attention(is_local, positions).into(), &inputs)?;
        y = then("attn.attention.out_proj", Linear::new(features).into(), &[y])?;
        y = add_dropout(&mut net, format!("{path}.attn.attention.resid_dropout"), config.resid_dropout, y)?;
        let middle = net.add(format!("{path}.add"), LayerKind::Add, [y, x])?;
        y = net.add(format!("{path}.ln_2"), config.norm(), [middle])?;
        let hidden = config.intermediate_size.unwrap_or(features.saturating_mul(4));
        y = net.add(format!("{path}.mlp.c_fc"), Linear::new(hidden), [y])?;
        y = net.add(format!("{path}.mlp.act"), activation(&config.activation_function)?, [y])?;
        y = net.add(format!("{path}.mlp.c_proj"), Linear::new(features), [y])?;
        y = add_dropout(&mut net, format!("{path}.mlp.dropout"), config.resid_dropout, y)?;
        x = net.add(format!("{path}.add.2"), LayerKind::Add, [middle, y])?;
    }
    x = net.add("transformer.ln_f", config.norm(), [x])?;
    add_head(&mut net, config.vocab_size, (tokens, config.tie_word_embeddings), x)?;
    Ok(Configured { network: net, left_out: Vec::new() })
}

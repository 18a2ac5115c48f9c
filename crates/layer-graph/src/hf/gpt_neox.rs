//! GPT-NeoX (Black et al., 2022), such as Pythia.

use serde::Deserialize;

use super::rotation::Rotation;
use super::{Configured, activation, add_dropout, add_head, check, yes};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention, Permute,
    Reshape, RotaryEmbedding, Select, Shape,
};

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default)]
    hidden_dropout: f64,
    max_position_embeddings: Option<usize>,
    rotary_pct: Option<f64>,
    rotary_emb_base: Option<f64>,
    rope_parameters: Option<Rotation>,
    rope_scaling: Option<Rotation>,
    #[serde(default = "yes")]
    use_parallel_residual: bool,
    #[serde(default = "yes")]
    attention_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

fn gelu() -> String {
    "gelu".into()
}

fn epsilon() -> f64 {
    1e-5
}

impl Config {
    /// Returns the rotation of queries and keys of heads of `width` features, and a description of
    /// the scaling that it lacks.
    fn rotation(&self, width: usize) -> Result<(RotaryEmbedding, Option<String>), GraphError> {
        let groups = [&self.rope_scaling, &self.rope_parameters];
        let base = groups.iter().find_map(|group| group.as_ref()?.rope_theta).or(self.rotary_emb_base);
        let part = groups.iter().find_map(|group| group.as_ref()?.partial_rotary_factor).or(self.rotary_pct);
        let mut rotary = RotaryEmbedding::new(width, base.unwrap_or(1e4));
        // As in PyTorch, rounded down. Numbers out of range do not fit the head.
        let rotated = (width as f64 * part.unwrap_or(0.25)) as usize;
        rotary.rotated = Some(rotated).filter(|&rotated| rotated != width);
        let left_out = Rotation::scale(groups, self.max_position_embeddings, &mut rotary)?;
        Ok((rotary, left_out))
    }

    fn norm(&self) -> LayerKind {
        LayerNorm { epsilon: self.layer_norm_eps }.into()
    }
}

/// Builds the network.
pub(super) fn build(name: &str, config: &Config, positions: usize) -> Result<Configured, GraphError> {
    check(positions, config.max_position_embeddings, config.num_hidden_layers)?;
    let features = config.hidden_size;
    let width = features.checked_div(config.num_attention_heads).unwrap_or(0);
    let (rotary, left_out) = config.rotation(width)?;
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = net.add("gpt_neox.embed_in", Embedding::new(config.vocab_size, features), [net.input()])?;
    let mut x = add_dropout(&mut net, "gpt_neox.emb_dropout", config.hidden_dropout, tokens)?;
    for block in 0..config.num_hidden_layers {
        let path = format!("gpt_neox.layers.{block}");
        let normed = net.add(format!("{path}.input_layernorm"), config.norm(), [x])?;
        let mut attended = add_attention(&mut net, config, &format!("{path}.attention"), &rotary, normed)?;
        let dropout = format!("{path}.post_attention_dropout");
        attended = add_dropout(&mut net, dropout, config.hidden_dropout, attended)?;
        let mut middle = x;
        if !config.use_parallel_residual {
            middle = net.add(format!("{path}.add"), LayerKind::Add, [attended, x])?;
        }
        let normed = net.add(format!("{path}.post_attention_layernorm"), config.norm(), [middle])?;
        let mut y =
            net.add(format!("{path}.mlp.dense_h_to_4h"), Linear::new(config.intermediate_size), [normed])?;
        y = net.add(format!("{path}.mlp.act"), activation(&config.hidden_act)?, [y])?;
        y = net.add(format!("{path}.mlp.dense_4h_to_h"), Linear::new(features), [y])?;
        y = add_dropout(&mut net, format!("{path}.post_mlp_dropout"), config.hidden_dropout, y)?;
        if config.use_parallel_residual {
            y = net.add(format!("{path}.add"), LayerKind::Add, [y, attended])?;
        }
        x = net.add(format!("{path}.add.2"), LayerKind::Add, [y, middle])?;
    }
    x = net.add("gpt_neox.final_layer_norm", config.norm(), [x])?;
    add_head(&mut net, config.vocab_size, (tokens, config.tie_word_embeddings), x)?;
    Ok(Configured { network: net, left_out: left_out.into_iter().collect() })
}

/// Adds the attention of a block. One linear layer computes the query, the key and the value of one
/// head after the other.
fn add_attention(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    rotary: &RotaryEmbedding,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let (features, heads) = (config.hidden_size, config.num_attention_heads);
    let positions = net.layer(input).output_shape().dims()[0];
    let linear = |out_features| Linear { out_features, bias: config.attention_bias };
    let mut then =
        |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
    let all = then("query_key_value", linear(features.saturating_mul(3)).into(), &[input])?;
    let output = Shape::new([positions, heads, 3, rotary.width]);
    let by_head = then("reshape", Reshape { output }.into(), &[all])?;
    let by_part = then("permute", Permute { order: vec![2, 0, 1, 3] }.into(), &[by_head])?;
    let mut parts = Vec::with_capacity(3);
    for (index, (select, part)) in
        [("select", "queries"), ("select.2", "keys"), ("select.3", "values")].into_iter().enumerate()
    {
        let of_heads = then(select, Select { index }.into(), &[by_part])?;
        let output = Shape::sequence(positions, features);
        parts.push(then(part, Reshape { output }.into(), &[of_heads])?);
    }
    parts[0] = then("rotated_queries", rotary.clone().into(), &[parts[0]])?;
    parts[1] = then("rotated_keys", rotary.clone().into(), &[parts[1]])?;
    let attention = MultiHeadAttention::new(heads, true).with_dropout(config.attention_dropout);
    let attended = net.add(path, attention, parts)?;
    net.add(format!("{path}.dense"), linear(features), [attended])
}

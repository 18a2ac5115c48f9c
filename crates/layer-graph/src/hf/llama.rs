//! Llama (Touvron et al., 2023), Mistral (Jiang et al., 2023) and Qwen2 (Yang et al., 2024).

use serde::Deserialize;

use super::{Configured, activation, attention_dropout, check, invalid};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, Linear, MultiHeadAttention, RmsNorm,
    RotaryEmbedding, Shape,
};

/// Fields of the configuration that say what the layers are.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    num_key_value_heads: Option<usize>,
    head_dim: Option<usize>,
    #[serde(default = "silu")]
    hidden_act: String,
    #[serde(default = "epsilon")]
    rms_norm_eps: f64,
    rope_theta: Option<f64>,
    /// In newer files instead of `rope_theta` and `rope_scaling`.
    rope_parameters: Option<Rotation>,
    rope_scaling: Option<Rotation>,
    max_position_embeddings: Option<usize>,
    sliding_window: Option<usize>,
    use_sliding_window: Option<bool>,
    pad_token_id: Option<i64>,
    #[serde(default)]
    attention_dropout: f64,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    #[serde(default)]
    tie_word_embeddings: bool,
}

#[derive(Deserialize)]
struct Rotation {
    rope_theta: Option<f64>,
    #[serde(alias = "type")]
    rope_type: Option<String>,
}

fn silu() -> String {
    "silu".into()
}

fn epsilon() -> f64 {
    1e-6
}

impl Config {
    /// Returns the base of the rotary angles: the older field, or the one in the newer group.
    fn base(&self) -> f64 {
        let newer = self.rope_parameters.as_ref().and_then(|rotation| rotation.rope_theta);
        newer.or(self.rope_theta).unwrap_or(1e4)
    }

    /// Returns what a network for sequences of `positions` tokens lacks.
    fn left_out(&self, positions: usize) -> Vec<String> {
        let window = self
            .sliding_window
            .filter(|&window| self.use_sliding_window != Some(false) && window < positions);
        let window = window.map(|window| format!("attention to the last {window} positions only"));
        let rotation = self.rope_scaling.as_ref().or(self.rope_parameters.as_ref());
        let rotation = rotation.and_then(|rotation| rotation.rope_type.as_deref());
        let scaling = rotation.filter(|&scaling| scaling != "default");
        let scaling = scaling.map(|scaling| format!("scaled rotary angles ({scaling})"));
        attention_dropout(self.attention_dropout).into_iter().chain(window).chain(scaling).collect()
    }
}

/// Builds the network. The queries, keys and values of Qwen2 have biases.
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    is_qwen2: bool,
) -> Result<Configured, GraphError> {
    check(positions, config.max_position_embeddings, config.num_hidden_layers)?;
    let (features, heads) = (config.hidden_size, config.num_attention_heads);
    let key_heads = config.num_key_value_heads.unwrap_or(heads);
    let width = config.head_dim.or_else(|| features.checked_div(heads)).unwrap_or(0);
    if key_heads == 0 || heads % key_heads != 0 {
        return Err(invalid(format!("{heads} heads cannot share {key_heads} heads of keys and values")));
    }
    let padding = config.pad_token_id.and_then(|token| usize::try_from(token).ok());
    let activation = activation(&config.hidden_act)?;
    let linear = |out_features: usize, bias: bool| Linear { out_features, bias };
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = Embedding { padding, ..Embedding::new(config.vocab_size, features) };
    let tokens = net.add("model.embed_tokens", tokens, [net.input()])?;
    let mut x = tokens;
    for block in 0..config.num_hidden_layers {
        let path = format!("model.layers.{block}");
        let mut then =
            |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
        let normed = then("input_layernorm", RmsNorm::new(config.rms_norm_eps).into(), &[x])?;
        let has_bias = config.attention_bias || is_qwen2;
        let mut project = |what: &str, heads: usize| {
            let features = heads.saturating_mul(width);
            then(&format!("self_attn.{what}_proj"), linear(features, has_bias).into(), &[normed])
        };
        let (queries, keys, values) =
            (project("q", heads)?, project("k", key_heads)?, project("v", key_heads)?);
        let rotary = RotaryEmbedding::new(width, config.base());
        let queries = then("self_attn.rotated_queries", rotary.clone().into(), &[queries])?;
        let keys = then("self_attn.rotated_keys", rotary.into(), &[keys])?;
        let attention = MultiHeadAttention::new(heads, true);
        let attended = then("self_attn", attention.into(), &[queries, keys, values])?;
        let out = then("self_attn.o_proj", linear(features, config.attention_bias).into(), &[attended])?;
        let middle = then("add", LayerKind::Add, &[x, out])?;
        let normed = then("post_attention_layernorm", RmsNorm::new(config.rms_norm_eps).into(), &[middle])?;
        let hidden = linear(config.intermediate_size, config.mlp_bias);
        let gate = then("mlp.gate_proj", hidden.clone().into(), &[normed])?;
        let gate = then("mlp.act_fn", activation.clone(), &[gate])?;
        let up = then("mlp.up_proj", hidden.into(), &[normed])?;
        let gated = then("mlp.mul", LayerKind::Multiply, &[gate, up])?;
        let down = then("mlp.down_proj", linear(features, config.mlp_bias).into(), &[gated])?;
        x = then("add.2", LayerKind::Add, &[middle, down])?;
    }
    x = net.add("model.norm", RmsNorm::new(config.rms_norm_eps), [x])?;
    let head = Linear::new(config.vocab_size).without_bias();
    x = if config.tie_word_embeddings {
        net.add_tied("lm_head", head, [x], tokens)?
    } else {
        net.add("lm_head", head, [x])?
    };
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    Ok(Configured { network: net, left_out: config.left_out(positions) })
}

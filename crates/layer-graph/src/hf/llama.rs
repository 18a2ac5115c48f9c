//! Llama (Touvron et al., 2023), Mistral (Jiang et al., 2023) and Qwen2 (Yang et al., 2024).

use serde::{Deserialize, Deserializer};

use super::{Configured, activation, check, invalid};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, Linear, MultiHeadAttention, RmsNorm,
    RotaryEmbedding, Shape,
};

/// Family of networks with these layers. Their modules differ in defaults and in biases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Mistral,
    /// Queries, keys and values have biases.
    Qwen2,
}

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default)]
    num_key_value_heads: Field,
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
    #[serde(default)]
    sliding_window: Field,
    use_sliding_window: Option<bool>,
    pad_token_id: Option<i64>,
    attention_dropout: Option<f64>,
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
    rope_type: Option<String>,
    /// Older name of `rope_type`. Files may have both.
    #[serde(rename = "type")]
    older_type: Option<String>,
}

/// Number whose default, without the field, is not that of null.
#[derive(Clone, Copy, Default)]
enum Field {
    #[default]
    Missing,
    Null,
    Number(usize),
}

impl<'de> Deserialize<'de> for Field {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = Option::deserialize(deserializer)?;
        Ok(number.map_or(Self::Null, Self::Number))
    }
}

fn silu() -> String {
    "silu".into()
}

fn epsilon() -> f64 {
    1e-6
}

impl Config {
    /// Returns the base of the rotary angles: the older field, or the one in the newer groups.
    fn base(&self) -> f64 {
        let mut groups = [&self.rope_parameters, &self.rope_scaling].into_iter().flatten();
        groups.find_map(|group| group.rope_theta).or(self.rope_theta).unwrap_or(1e4)
    }

    /// Returns the number of heads of keys and values: without the field, the family's default.
    fn key_heads(&self, family: Family) -> usize {
        match (self.num_key_value_heads, family) {
            (Field::Number(heads), _) => heads,
            (Field::Null, _) | (Field::Missing, Family::Llama) => self.num_attention_heads,
            (Field::Missing, Family::Mistral) => 8,
            (Field::Missing, Family::Qwen2) => 32,
        }
    }

    /// Returns the number of positions that each attends to, itself included, if there is a limit.
    fn window(&self, family: Family) -> Option<usize> {
        let window = match self.sliding_window {
            Field::Number(window) => Some(window),
            Field::Null => None,
            Field::Missing => Some(4096),
        };
        match family {
            Family::Llama => None,
            Family::Mistral => window,
            Family::Qwen2 => window.filter(|_| self.use_sliding_window == Some(true)),
        }
    }

    /// Returns the padding token. A negative number counts from the end of the vocabulary.
    fn padding(&self) -> Result<Option<usize>, GraphError> {
        let Some(token) = self.pad_token_id else { return Ok(None) };
        let size = usize::try_from(token.unsigned_abs()).unwrap_or(usize::MAX);
        let padding = if token < 0 { self.vocab_size.checked_sub(size) } else { Some(size) };
        let padding = padding.filter(|&padding| padding < self.vocab_size);
        let problem = || invalid(format!("pad_token_id {token} is not in {} tokens", self.vocab_size));
        padding.map(Some).ok_or_else(problem)
    }

    /// Returns what a network for sequences of `positions` tokens lacks.
    fn left_out(&self, family: Family, positions: usize) -> Vec<String> {
        let window = self.window(family).filter(|&window| window < positions);
        let window = window.map(|window| format!("attention to the last {window} positions only"));
        let groups = [&self.rope_scaling, &self.rope_parameters].into_iter().flatten();
        let mut scalings = groups.filter_map(|group| group.rope_type.as_ref().or(group.older_type.as_ref()));
        let scaling = scalings.find(|&scaling| scaling != "default");
        let scaling = scaling.map(|scaling| format!("scaled rotary angles ({scaling})"));
        window.into_iter().chain(scaling).collect()
    }
}

/// Builds the network.
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    family: Family,
) -> Result<Configured, GraphError> {
    check(positions, config.max_position_embeddings, config.num_hidden_layers)?;
    let (features, heads) = (config.hidden_size, config.num_attention_heads);
    let key_heads = config.key_heads(family);
    if family == Family::Llama && features.checked_rem(heads) != Some(0) {
        return Err(invalid(format!("hidden_size {features} is no multiple of {heads} heads")));
    }
    let width = config.head_dim.or_else(|| features.checked_div(heads)).unwrap_or(0);
    if key_heads == 0 || heads % key_heads != 0 {
        return Err(invalid(format!("{heads} heads cannot share {key_heads} heads of keys and values")));
    }
    let padding = config.padding()?;
    let [of_inputs, of_output, of_mlp] = match family {
        Family::Llama => [config.attention_bias, config.attention_bias, config.mlp_bias],
        Family::Mistral => [false; 3],
        Family::Qwen2 => [true, false, false],
    };
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
        let mut project = |what: &str, heads: usize| {
            let features = heads.saturating_mul(width);
            then(&format!("self_attn.{what}_proj"), linear(features, of_inputs).into(), &[normed])
        };
        let (queries, keys, values) =
            (project("q", heads)?, project("k", key_heads)?, project("v", key_heads)?);
        let rotary = RotaryEmbedding::new(width, config.base());
        let queries = then("self_attn.rotated_queries", rotary.clone().into(), &[queries])?;
        let keys = then("self_attn.rotated_keys", rotary.into(), &[keys])?;
        let dropout = config.attention_dropout.unwrap_or(0.0);
        let attention = MultiHeadAttention::new(heads, true).with_dropout(dropout);
        let attended = then("self_attn", attention.into(), &[queries, keys, values])?;
        let out = then("self_attn.o_proj", linear(features, of_output).into(), &[attended])?;
        let middle = then("add", LayerKind::Add, &[x, out])?;
        let normed = then("post_attention_layernorm", RmsNorm::new(config.rms_norm_eps).into(), &[middle])?;
        let hidden = linear(config.intermediate_size, of_mlp);
        let gate = then("mlp.gate_proj", hidden.clone().into(), &[normed])?;
        let gate = then("mlp.act_fn", activation.clone(), &[gate])?;
        let up = then("mlp.up_proj", hidden.into(), &[normed])?;
        let gated = then("mlp.mul", LayerKind::Multiply, &[gate, up])?;
        let down = then("mlp.down_proj", linear(features, of_mlp).into(), &[gated])?;
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
    Ok(Configured { network: net, left_out: config.left_out(family, positions) })
}

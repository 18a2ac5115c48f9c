//! Llama (Touvron et al., 2023), Mistral (Jiang et al., 2023), Mixtral (Jiang et al., 2024), Qwen2
//! (Yang et al., 2024) and Gemma (Mesnard et al., 2024).

use serde::Deserialize;

use super::rotation::Rotation;
use super::{Configured, Field, activation, add_head, check, invalid, padding};
use crate::{
    Embedding, ExpertActivation, GraphError, LayerGraph, LayerId, LayerKind, Linear, MixtureOfExperts,
    MultiHeadAttention, RmsNorm, RotaryEmbedding, Scale, Shape,
};

/// Family of networks with these layers. Their modules differ in defaults and in biases.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    Llama,
    Mistral,
    /// Mixtures of experts are in place of gated linear layers.
    Mixtral,
    /// Queries, keys and values have biases.
    Qwen2,
    /// Embeddings are scaled, and the weights of normalisations are added to 1.
    Gemma,
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
    num_key_value_heads: Field<usize>,
    head_dim: Option<usize>,
    hidden_act: Option<String>,
    rms_norm_eps: Option<f64>,
    rope_theta: Option<f64>,
    /// In newer files instead of `rope_theta` and `rope_scaling`.
    rope_parameters: Option<Rotation>,
    rope_scaling: Option<Rotation>,
    max_position_embeddings: Option<usize>,
    #[serde(default)]
    sliding_window: Field<usize>,
    use_sliding_window: Option<bool>,
    #[serde(default)]
    max_window_layers: Field<usize>,
    layer_types: Option<Vec<String>>,
    #[serde(default)]
    pad_token_id: Field<i64>,
    attention_dropout: Option<f64>,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
    tie_word_embeddings: Option<bool>,
    use_bidirectional_attention: Option<bool>,
    num_local_experts: Option<usize>,
    num_experts_per_tok: Option<usize>,
    router_jitter_noise: Option<f64>,
    #[serde(default)]
    output_router_logits: bool,
}

impl Config {
    /// Returns the base of the rotary angles: the older field, or the one in the newer groups, or
    /// the family's default.
    fn base(&self, family: Family) -> f64 {
        let default = if family == Family::Mixtral { 1e6 } else { 1e4 };
        let mut groups = [&self.rope_parameters, &self.rope_scaling].into_iter().flatten();
        groups.find_map(|group| group.rope_theta).or(self.rope_theta).unwrap_or(default)
    }

    /// Returns the number of heads of keys and values: without the field, the family's default.
    fn key_heads(&self, family: Family) -> usize {
        let default = match family {
            Family::Llama => None,
            Family::Mistral | Family::Mixtral => Some(8),
            Family::Qwen2 => Some(32),
            Family::Gemma => Some(16),
        };
        self.num_key_value_heads.or(default).unwrap_or(self.num_attention_heads)
    }

    /// Returns the number of features of a head: without the field, the family's default.
    fn width(&self, family: Family) -> usize {
        let of_family = (family == Family::Gemma).then_some(256);
        let equal_parts = self.hidden_size.checked_div(self.num_attention_heads);
        self.head_dim.or(of_family).or(equal_parts).unwrap_or(0)
    }

    /// Returns the number of positions that each attends to in a block, itself included, if there
    /// are more of them.
    fn window(&self, family: Family, block: usize, positions: usize) -> Option<usize> {
        let window = self.sliding_window.or(Some(4096));
        let window = match family {
            Family::Llama | Family::Gemma => None,
            Family::Mistral => window,
            // Without the field, there is none.
            Family::Mixtral => self.sliding_window.or(None),
            Family::Qwen2 => {
                let is_sliding = match &self.layer_types {
                    Some(types) => types.get(block).is_some_and(|name| name == "sliding_attention"),
                    None => self.max_window_layers.or(Some(28)).is_some_and(|first| block >= first),
                };
                window.filter(|_| self.use_sliding_window == Some(true) && is_sliding)
            }
        };
        window.filter(|&window| window < positions)
    }

    /// Returns the activation. Files of Gemma with the exact error linear unit mean its
    /// approximation.
    fn activation(&self, family: Family) -> Result<LayerKind, GraphError> {
        match (self.hidden_act.as_deref(), family) {
            (None | Some("gelu"), Family::Gemma) => Ok(LayerKind::GeluTanh),
            (name, _) => activation(name.unwrap_or("silu")),
        }
    }

    /// Returns whether the projections of queries, keys and values, the projection of the
    /// attention's output, and the linear layers of the gated part have biases.
    fn biases(&self, family: Family) -> [bool; 3] {
        match family {
            Family::Llama => [self.attention_bias, self.attention_bias, self.mlp_bias],
            Family::Mistral | Family::Mixtral => [false; 3],
            Family::Qwen2 => [true, false, false],
            Family::Gemma => [self.attention_bias, self.attention_bias, false],
        }
    }

    fn norm(&self, family: Family) -> RmsNorm {
        let default = if family == Family::Mixtral { 1e-5 } else { 1e-6 };
        let epsilon = self.rms_norm_eps.unwrap_or(default);
        RmsNorm { unit_offset: family == Family::Gemma, ..RmsNorm::new(epsilon) }
    }

    /// Returns the mixture of experts of a block with the given activation.
    fn experts(&self, activation: &LayerKind) -> Result<MixtureOfExperts, GraphError> {
        use ExpertActivation::{Gelu, GeluTanh, Relu, Silu};
        let (experts, chosen) = (self.num_local_experts.unwrap_or(8), self.num_experts_per_tok.unwrap_or(2));
        let known = [Relu, Gelu, GeluTanh, Silu].into_iter().find(|known| known.kind() == *activation);
        let activation = known.ok_or_else(|| {
            invalid(format!("experts with the activation `{}` cannot be read", activation.label()))
        })?;
        Ok(MixtureOfExperts { activation, ..MixtureOfExperts::new(experts, chosen, self.intermediate_size) })
    }

    /// Returns the parts of the routers that the network lacks.
    fn left_out_of_routers(&self) -> impl Iterator<Item = &'static str> {
        let noise = self.router_jitter_noise.is_some_and(|noise| noise > 0.0);
        let parts = [(noise, "the noise of routers"), (self.output_router_logits, "the loss of routers")];
        parts.into_iter().filter_map(|(is_set, part)| is_set.then_some(part))
    }

    /// Returns the rotation of queries and keys of heads of `width` features, and a description of
    /// the scaling that it lacks.
    fn rotation(
        &self,
        width: usize,
        family: Family,
    ) -> Result<(RotaryEmbedding, Option<String>), GraphError> {
        let mut rotary = RotaryEmbedding::new(width, self.base(family));
        let groups = [&self.rope_scaling, &self.rope_parameters];
        let left_out = Rotation::scale(groups, self.max_position_embeddings, &mut rotary)?;
        Ok((rotary, left_out))
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
    let width = config.width(family);
    if key_heads == 0 || heads % key_heads != 0 {
        return Err(invalid(format!("{heads} heads cannot share {key_heads} heads of keys and values")));
    }
    let token = config.pad_token_id.or((family == Family::Gemma).then_some(0));
    let padding = padding(token, config.vocab_size)?;
    let [of_inputs, of_output, of_mlp] = config.biases(family);
    let activation = config.activation(family)?;
    let is_causal = family != Family::Gemma || config.use_bidirectional_attention != Some(true);
    let (rotary, left_out) = config.rotation(width, family)?;
    let linear = |out_features: usize, bias: bool| Linear { out_features, bias };
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = Embedding { padding, ..Embedding::new(config.vocab_size, features) };
    let tokens = net.add("model.embed_tokens", tokens, [net.input()])?;
    let mut x = tokens;
    if family == Family::Gemma {
        // As in PyTorch, a number of single precision.
        let factor = f64::from((features as f64).sqrt() as f32);
        x = net.add("model.embed_tokens.mul", Scale::Constant(factor), [x])?;
    }
    for block in 0..config.num_hidden_layers {
        let path = format!("model.layers.{block}");
        let mut then =
            |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
        let normed = then("input_layernorm", config.norm(family).into(), &[x])?;
        let mut project = |what: &str, heads: usize| {
            let features = heads.saturating_mul(width);
            then(&format!("self_attn.{what}_proj"), linear(features, of_inputs).into(), &[normed])
        };
        let (queries, keys, values) =
            (project("q", heads)?, project("k", key_heads)?, project("v", key_heads)?);
        let queries = then("self_attn.rotated_queries", rotary.clone().into(), &[queries])?;
        let keys = then("self_attn.rotated_keys", rotary.clone().into(), &[keys])?;
        let dropout = config.attention_dropout.unwrap_or(0.0);
        let mut attention = MultiHeadAttention::new(heads, is_causal).with_dropout(dropout);
        attention.window = config.window(family, block, positions);
        let attended = then("self_attn", attention.into(), &[queries, keys, values])?;
        let out = then("self_attn.o_proj", linear(features, of_output).into(), &[attended])?;
        let middle = then("add", LayerKind::Add, &[x, out])?;
        let normed = then("post_attention_layernorm", config.norm(family).into(), &[middle])?;
        if family == Family::Mixtral {
            let experts = config.experts(&activation)?;
            let router = linear(experts.experts, false);
            let scores = then("mlp.gate", router.into(), &[normed])?;
            let down = then("mlp.experts", experts.into(), &[normed, scores])?;
            x = then("add.2", LayerKind::Add, &[middle, down])?;
            continue;
        }
        let hidden = linear(config.intermediate_size, of_mlp);
        let gate = then("mlp.gate_proj", hidden.clone().into(), &[normed])?;
        let gate = then("mlp.act_fn", activation.clone(), &[gate])?;
        let up = then("mlp.up_proj", hidden.into(), &[normed])?;
        let gated = then("mlp.mul", LayerKind::Multiply, &[gate, up])?;
        let down = then("mlp.down_proj", linear(features, of_mlp).into(), &[gated])?;
        x = then("add.2", LayerKind::Add, &[middle, down])?;
    }
    x = net.add("model.norm", config.norm(family), [x])?;
    let is_tied = config.tie_word_embeddings.unwrap_or(family == Family::Gemma);
    add_head(&mut net, config.vocab_size, (tokens, is_tied), x)?;
    let mut left_out: Vec<String> = left_out.into_iter().collect();
    if family == Family::Mixtral {
        left_out.extend(config.left_out_of_routers().map(str::to_owned));
    }
    Ok(Configured { network: net, left_out })
}

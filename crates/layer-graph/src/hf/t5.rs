//! The encoder of T5 (Raffel et al., 2020).

use serde::Deserialize;

use super::{Configured, Labels, activation, add_dropout, check_blocks, tenth};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, Linear, MultiHeadAttention, RelativePositions,
    RmsNorm, Shape,
};

/// Class of `transformers` whose last layers are known.
pub(super) const CLASS: &str = "T5ForTokenClassification";

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_heads: usize,
    #[serde(default = "buckets")]
    relative_attention_num_buckets: usize,
    #[serde(default = "distance")]
    relative_attention_max_distance: usize,
    #[serde(default = "tenth")]
    dropout_rate: f64,
    #[serde(default = "epsilon")]
    layer_norm_epsilon: f64,
    #[serde(default = "relu")]
    feed_forward_proj: String,
    #[serde(default)]
    classifier_dropout: f64,
}

fn buckets() -> usize {
    32
}

fn distance() -> usize {
    128
}

fn epsilon() -> f64 {
    1e-6
}

fn relu() -> String {
    "relu".into()
}

impl Config {
    fn norm(&self) -> LayerKind {
        RmsNorm::new(self.layer_norm_epsilon).into()
    }

    /// Returns the activation, and whether its output is multiplied with a second linear layer.
    fn activation(&self) -> Result<(LayerKind, bool), GraphError> {
        match self.feed_forward_proj.strip_prefix("gated-") {
            // As in `transformers`, which reads `gated-gelu` as `gelu_new`.
            Some("gelu") => Ok((LayerKind::GeluTanh, true)),
            Some(name) => Ok((activation(name)?, true)),
            None => Ok((activation(&self.feed_forward_proj)?, false)),
        }
    }

    fn attention(&self) -> MultiHeadAttention {
        let relative =
            RelativePositions::new(self.relative_attention_num_buckets, self.relative_attention_max_distance);
        let attention = MultiHeadAttention::new(self.num_heads, false).scaled_by(1.0);
        attention.with_dropout(self.dropout_rate).with_relative_positions(relative)
    }
}

/// Builds the encoder, with scores of the classes of each token.
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    labels: &Labels,
) -> Result<Configured, GraphError> {
    check_blocks(config.num_layers)?;
    let path = "transformer.encoder";
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    let tokens = Embedding::new(config.vocab_size, config.d_model);
    let mut x = net.add(format!("{path}.embed_tokens"), tokens, [net.input()])?;
    x = add_dropout(&mut net, format!("{path}.dropout"), config.dropout_rate, x)?;
    let mut first = None;
    for block in 0..config.num_layers {
        let path = format!("{path}.block.{block}.layer");
        let (attention, middle) = add_attention(&mut net, config, &format!("{path}.0"), first, x)?;
        // All blocks have the numbers of relative positions of the first one.
        first = first.or(Some(attention));
        x = add_linears(&mut net, config, &format!("{path}.1"), middle)?;
    }
    x = net.add(format!("{path}.final_layer_norm"), config.norm(), [x])?;
    x = add_dropout(&mut net, format!("{path}.dropout.2"), config.dropout_rate, x)?;
    x = add_dropout(&mut net, "dropout", config.classifier_dropout, x)?;
    x = net.add("classifier", Linear::new(labels.count()), [x])?;
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    Ok(Configured { network: net, left_out: labels.other_loss().into_iter().collect() })
}

/// Adds the attention of a block, and returns it and the residual sum. `first` is the attention of
/// the first block.
fn add_attention(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    first: Option<LayerId>,
    input: LayerId,
) -> Result<(LayerId, LayerId), GraphError> {
    let normed = net.add(format!("{path}.layer_norm"), config.norm(), [input])?;
    let attention = format!("{path}.SelfAttention");
    let features = config.num_heads.saturating_mul(config.d_kv);
    let [queries, keys, values] = ["q", "k", "v"]
        .map(|part| net.add(format!("{attention}.{part}"), Linear::new(features).without_bias(), [normed]));
    let inputs = [queries?, keys?, values?];
    let attended = match first {
        Some(first) => net.add_tied(&attention, config.attention(), inputs, first)?,
        None => net.add(&attention, config.attention(), inputs)?,
    };
    let output = Linear::new(config.d_model).without_bias();
    let x = net.add(format!("{attention}.o"), output, [attended])?;
    Ok((attended, then_add(net, config, path, input, x)?))
}

/// Adds the linear layers of a block, and returns the residual sum.
fn add_linears(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let normed = net.add(format!("{path}.layer_norm"), config.norm(), [input])?;
    let (activation, is_gated) = config.activation()?;
    let hidden = || Linear::new(config.d_ff).without_bias();
    let inner = format!("{path}.DenseReluDense");
    let first = if is_gated { "wi_0" } else { "wi" };
    let mut x = net.add(format!("{inner}.{first}"), hidden(), [normed])?;
    x = net.add(format!("{inner}.act"), activation, [x])?;
    if is_gated {
        let up = net.add(format!("{inner}.wi_1"), hidden(), [normed])?;
        x = net.add(format!("{inner}.mul"), LayerKind::Multiply, [x, up])?;
    }
    x = add_dropout(net, format!("{inner}.dropout"), config.dropout_rate, x)?;
    x = net.add(format!("{inner}.wo"), Linear::new(config.d_model).without_bias(), [x])?;
    then_add(net, config, path, input, x)
}

/// Adds the dropout and the residual sum that end a sublayer.
fn then_add(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
    x: LayerId,
) -> Result<LayerId, GraphError> {
    let x = add_dropout(net, format!("{path}.dropout"), config.dropout_rate, x)?;
    net.add(format!("{path}.add"), LayerKind::Add, [input, x])
}

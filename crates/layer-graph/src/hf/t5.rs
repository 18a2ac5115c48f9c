//! T5 (Raffel et al., 2020): the whole network, or its encoder.

use serde::Deserialize;

use super::{Configured, Labels, activation, add_dropout, add_head, check_blocks, tenth};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, Linear, MultiHeadAttention, RelativePositions,
    RmsNorm, Scale, Shape,
};

/// Class of `transformers` with the encoder and scores of the classes of each token.
pub(super) const CLASS: &str = "T5ForTokenClassification";
/// Class of `transformers` with encoder and decoder.
pub(super) const WHOLE: &str = "T5ForConditionalGeneration";

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    vocab_size: usize,
    d_model: usize,
    d_kv: usize,
    d_ff: usize,
    num_layers: usize,
    num_decoder_layers: Option<usize>,
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
    scale_decoder_outputs: Option<bool>,
    tie_word_embeddings: Option<bool>,
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

    /// Returns an attention, whose products are not scaled.
    fn attention(&self, causal: bool) -> MultiHeadAttention {
        MultiHeadAttention::new(self.num_heads, causal).scaled_by(1.0).with_dropout(self.dropout_rate)
    }
}

/// Builds the network of a class: the encoder, with scores of the classes of each token, or with
/// the decoder and scores of the next word at each of its positions, of which there are as many.
pub(super) fn build(
    name: &str,
    config: &Config,
    positions: usize,
    class: Option<&str>,
    labels: &Labels,
) -> Result<Configured, GraphError> {
    check_blocks(config.num_layers)?;
    let mut net = LayerGraph::new(name, Shape::features(positions))?;
    if class == Some(WHOLE) {
        let words = net.add_input("decoder_input_ids", Shape::features(positions))?;
        add_whole(&mut net, config, words)?;
        return Ok(Configured { network: net, left_out: Vec::new() });
    }
    let (_, mut x) = add_encoder(&mut net, config, "transformer.encoder")?;
    x = add_dropout(&mut net, "dropout", config.classifier_dropout, x)?;
    x = net.add("classifier", Linear::new(labels.count()), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(Configured { network: net, left_out: labels.other_loss().into_iter().collect() })
}

/// Adds the encoder, and returns its embedding and its output.
fn add_encoder(net: &mut LayerGraph, config: &Config, path: &str) -> Result<(LayerId, LayerId), GraphError> {
    let tokens = Embedding::new(config.vocab_size, config.d_model);
    let tokens = net.add(format!("{path}.embed_tokens"), tokens, [net.input()])?;
    let mut x = add_dropout(net, format!("{path}.dropout"), config.dropout_rate, tokens)?;
    let mut first = None;
    for block in 0..config.num_layers {
        let path = format!("{path}.block.{block}.layer");
        let (attention, middle) = add_attention(net, config, &format!("{path}.0"), (first, false), x)?;
        // All blocks have the numbers of relative positions of the first one.
        first = first.or(Some(attention));
        x = add_linears(net, config, &format!("{path}.1"), middle)?;
    }
    Ok((tokens, add_end(net, config, path, x)?))
}

/// Adds the normalisation and the dropout that end the encoder or the decoder.
fn add_end(net: &mut LayerGraph, config: &Config, path: &str, x: LayerId) -> Result<LayerId, GraphError> {
    let x = net.add(format!("{path}.final_layer_norm"), config.norm(), [x])?;
    // The second dropout of the module.
    add_dropout(net, format!("{path}.dropout.2"), config.dropout_rate, x)
}

/// Adds the encoder, the decoder of `words`, and the loss of the next words.
fn add_whole(net: &mut LayerGraph, config: &Config, words: LayerId) -> Result<(), GraphError> {
    let blocks = config.num_decoder_layers.unwrap_or(config.num_layers);
    check_blocks(blocks)?;
    let (tokens, encoded) = add_encoder(net, config, "encoder")?;
    let embedding = Embedding::new(config.vocab_size, config.d_model);
    let mut x = net.add_tied("decoder.embed_tokens", embedding, [words], tokens)?;
    x = add_dropout(net, "decoder.dropout", config.dropout_rate, x)?;
    let mut first = None;
    for block in 0..blocks {
        let path = format!("decoder.block.{block}.layer");
        let (attention, middle) = add_attention(net, config, &format!("{path}.0"), (first, true), x)?;
        first = first.or(Some(attention));
        let middle = add_cross_attention(net, config, &format!("{path}.1"), middle, encoded)?;
        x = add_linears(net, config, &format!("{path}.2"), middle)?;
    }
    x = add_end(net, config, "decoder", x)?;
    if config.scale_decoder_outputs.unwrap_or(config.tie_word_embeddings != Some(false)) {
        let factor = (config.d_model as f64).powf(-0.5);
        x = net.add("mul", Scale::Constant(factor), [x])?;
    }
    // As in `transformers` 5, which shares the weight in any case.
    add_head(net, config.vocab_size, (tokens, true), x)?;
    Ok(())
}

/// Adds the attention of a block to its input, causal in the decoder, and returns it and the
/// residual sum. `first` is the attention of the first block.
fn add_attention(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    (first, causal): (Option<LayerId>, bool),
    input: LayerId,
) -> Result<(LayerId, LayerId), GraphError> {
    let normed = net.add(format!("{path}.layer_norm"), config.norm(), [input])?;
    let attention = format!("{path}.SelfAttention");
    let inputs = add_projections(net, config, &attention, [normed; 3])?;
    let rule = config.attention(causal).with_relative_positions(RelativePositions::new(
        config.relative_attention_num_buckets,
        config.relative_attention_max_distance,
    ));
    let attended = match first {
        Some(first) => net.add_tied(&attention, rule, inputs, first)?,
        None => net.add(&attention, rule, inputs)?,
    };
    let output = Linear::new(config.d_model).without_bias();
    let x = net.add(format!("{attention}.o"), output, [attended])?;
    Ok((attended, then_add(net, config, path, input, x)?))
}

/// Adds the attention of a block of the decoder to the encoder's output, and returns the residual
/// sum.
fn add_cross_attention(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
    encoded: LayerId,
) -> Result<LayerId, GraphError> {
    let normed = net.add(format!("{path}.layer_norm"), config.norm(), [input])?;
    let attention = format!("{path}.EncDecAttention");
    let inputs = add_projections(net, config, &attention, [normed, encoded, encoded])?;
    let attended = net.add(&attention, config.attention(false), inputs)?;
    let output = Linear::new(config.d_model).without_bias();
    let x = net.add(format!("{attention}.o"), output, [attended])?;
    then_add(net, config, path, input, x)
}

/// Adds the linear layers of queries, keys and values of the given inputs.
fn add_projections(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    [queries, keys, values]: [LayerId; 3],
) -> Result<[LayerId; 3], GraphError> {
    let features = config.num_heads.saturating_mul(config.d_kv);
    let mut project =
        |part, input| net.add(format!("{path}.{part}"), Linear::new(features).without_bias(), [input]);
    Ok([project("q", queries)?, project("k", keys)?, project("v", values)?])
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

//! GNMT v2, the translation network of NVIDIA's Deep Learning Examples (`PyTorch/Translation/GNMT`)
//! and of `MLPerf`, after Wu et al. (2016).
//!
//! The encoder has four LSTM layers of 1024 cells, the first bidirectional. The decoder has four,
//! of which the outputs of the first attend to those of the encoder by normalised additive
//! attention (Bahdanau, Cho and Bengio, 2015); the context is an input of the layers above it. From
//! the third layer of the encoder and of the decoder on, the input of a layer is added to its
//! output. A fifth of each layer's inputs is dropped. Both languages share one embedding of the
//! 32,320 tokens of WMT16 English-German. The classifier has its own weights.
//!
//! A sample is a pair of sentences of 50 tokens each, the maximum kept by the reference training
//! (`--train-max-length`), as if all were padded to it. Most sentences are shorter and cost
//! proportionally less. The tokens of the source are followed by those of the target, from its
//! start token on; the labels are the following tokens of the target.
//!
//! Layers are named as the modules of the reference, so that
//! [`Layer::tensor_name`](crate::Layer::tensor_name) is a key of its `state_dict`; the embedding is
//! that of the encoder.
//!
//! Labels are smoothed by a tenth. Unlike in the reference, padding is like other tokens: it has an
//! embedding, recurrences and the attention do not leave it out, and its labels count.

use crate::{
    AdditiveAttention, Dropout, Embedding, GraphError, LayerGraph, LayerId, LayerKind, Linear, Recurrence,
    RecurrentCell, Shape, Slice, SoftmaxCrossEntropy,
};

/// Size of a translation network with the layers of GNMT v2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GnmtSize {
    /// Number of tokens of both languages.
    pub vocabulary: usize,
    /// Number of features of a token, cells of an LSTM layer and units of the attention.
    pub features: usize,
    /// Number of tokens of a sentence of each language.
    pub positions: usize,
}

/// Size of the published network.
pub(super) const SIZE: GnmtSize = GnmtSize { vocabulary: 32_320, features: 1024, positions: 50 };

/// Number of layers of the encoder, and of the decoder.
pub(super) const LAYERS: usize = 4;
const DROPOUT: f64 = 0.2;
const LABEL_SMOOTHING: f64 = 0.1;

/// Builds a network under the given name.
///
/// # Errors
/// [`GraphError::Shape`] if a size is 0 or too large.
pub(super) fn gnmt(name: &str, size: GnmtSize) -> Result<LayerGraph, GraphError> {
    let GnmtSize { vocabulary, features, positions } = size;
    let mut net = LayerGraph::new(name, Shape::features(positions.saturating_mul(2)))?;
    let tokens = net.add("encoder.embedder", Embedding::new(vocabulary, features), [net.input()])?;
    let source = net.add("source", Slice { start: 0, length: positions }, [tokens])?;
    let target = net.add("target", Slice { start: positions, length: positions }, [tokens])?;
    let encoded = encoder(&mut net, source, features)?;
    let decoded = decoder(&mut net, [target, encoded], features)?;
    let scores = net.add("decoder.classifier.classifier", Linear::new(vocabulary), [decoded])?;
    net.add("loss", SoftmaxCrossEntropy::smoothed(LABEL_SMOOTHING), [scores])?;
    Ok(net)
}

/// Adds the encoder.
fn encoder(net: &mut LayerGraph, source: LayerId, features: usize) -> Result<LayerId, GraphError> {
    let layer = |index: usize| format!("encoder.rnn_layers.{index}");
    let x = net.add("encoder.dropout.0", Dropout::new(DROPOUT), [source])?;
    let forward = direction(net, &layer(0), x, features, false)?;
    let reverse = direction(net, &layer(0), x, features, true)?;
    let both = net.add(format!("{}.concat", layer(0)), LayerKind::Concat, [forward, reverse])?;
    let mut x = lstm(net, ["encoder.dropout.1", &layer(1)], both, features)?;
    for index in 2..LAYERS {
        let above = lstm(net, [&format!("encoder.dropout.{index}"), &layer(index)], x, features)?;
        x = net.add(format!("encoder.sum.{index}"), LayerKind::Add, [above, x])?;
    }
    Ok(x)
}

/// Adds the decoder of the embedded target and of the encoder's outputs.
fn decoder(
    net: &mut LayerGraph,
    [target, encoded]: [LayerId; 2],
    features: usize,
) -> Result<LayerId, GraphError> {
    let mut x = lstm(net, ["decoder.att_rnn.dropout", "decoder.att_rnn.rnn"], target, features)?;
    let attention = "decoder.att_rnn.attn";
    let projection = || Linear::new(features).without_bias();
    let queries = net.add(format!("{attention}.linear_q"), projection(), [x])?;
    let keys = net.add(format!("{attention}.linear_k"), projection(), [encoded])?;
    let context = net.add(attention, AdditiveAttention::normalised(), [queries, keys, encoded])?;
    for index in 0..LAYERS - 1 {
        let inputs = net.add(format!("decoder.concat.{index}"), LayerKind::Concat, [x, context])?;
        let names = [&format!("decoder.dropout.{index}"), &format!("decoder.rnn_layers.{index}")];
        let above = lstm(net, names.map(String::as_str), inputs, features)?;
        x = if index == 0 {
            above
        } else {
            net.add(format!("decoder.sum.{index}"), LayerKind::Add, [above, x])?
        };
    }
    Ok(x)
}

/// Adds a dropout and an LSTM layer with these names.
fn lstm(
    net: &mut LayerGraph,
    [dropout, name]: [&str; 2],
    input: LayerId,
    features: usize,
) -> Result<LayerId, GraphError> {
    let x = net.add(dropout, Dropout::new(DROPOUT), [input])?;
    direction(net, name, x, features, false)
}

/// Adds one direction of an LSTM layer.
fn direction(
    net: &mut LayerGraph,
    name: &str,
    input: LayerId,
    features: usize,
    reversed: bool,
) -> Result<LayerId, GraphError> {
    let suffix = if reversed { "_reverse" } else { "" };
    let gates = net.add(format!("{name}.ih_l0{suffix}"), Linear::new(features.saturating_mul(4)), [input])?;
    let lstm = Recurrence { reversed, ..Recurrence::new(RecurrentCell::Lstm) };
    net.add(format!("{name}.hh_l0{suffix}"), lstm, [gates])
}

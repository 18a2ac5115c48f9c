//! GNMT v2 in chunks of steps. A *step* is one token of a sentence.
//!
//! The network is that of [`gnmt`](super::gnmt) with the same parameters, but its LSTM layers and
//! its attention are [opaque](crate::Opaque), one for each chunk: layers on several GPUs work on
//! different chunks at the same time. It can be planned and simulated, but not trained. Dropouts
//! and residual sums are assumed to be fused into the LSTM layers, and smoothing of labels is
//! counted.

use super::gnmt::{LAYERS, SIZE};
use super::lstm::{Lstm, chunks, elementwise};
use crate::{
    Embedding, GraphError, LayerGraph, LayerId, LayerKind, LayerTensor, Linear, Opaque, OpaquePass, Shape,
};

const VOCABULARY: usize = SIZE.vocabulary;
const FEATURES: usize = SIZE.features;
const POSITIONS: usize = SIZE.positions;
/// Number of encoder layers above the bidirectional one, and of decoder layers above the attending
/// one.
const UPPER: usize = LAYERS - 1;
/// Default number of steps in a chunk.
const STEPS: usize = 10;

/// Returns a layer with `inputs * FEATURES` input features.
fn layer(inputs: usize) -> Lstm {
    Lstm { inputs: inputs * FEATURES, cells: FEATURES, projection: None, biases: 2 }
}

/// Builds the network under the given name, in chunks of 10 steps. Its layers fit their inputs, so
/// that no error is returned.
pub(super) fn gnmt(name: &str) -> Result<LayerGraph, GraphError> {
    gnmt_in_chunks(name, STEPS)
}

/// Builds the network under the given name, in chunks of `steps` steps.
///
/// # Errors
/// [`GraphError::Shape`] if `steps` does not divide 50.
pub(super) fn gnmt_in_chunks(name: &str, steps: usize) -> Result<LayerGraph, GraphError> {
    let count = chunks(name, POSITIONS, steps)?;
    // Source tokens, followed by target tokens.
    let mut net = LayerGraph::new(name, Shape::features(2 * POSITIONS))?;
    let embedding = Embedding::new(VOCABULARY, FEATURES);
    let tokens = net.add("embedding", embedding, [net.input()])?;
    let encoded = encoder(&mut net, tokens, count, steps)?;
    let losses = decoder(&mut net, tokens, encoded, count, steps)?;
    let loss = elementwise("mean", Shape::features(1), count, count + 1).loss(POSITIONS);
    net.add("loss", loss, losses)?;
    Ok(net)
}

/// Adds a view of a part of the embedded tokens, which costs nothing.
fn view(net: &mut LayerGraph, name: String, tokens: LayerId, steps: usize) -> Result<LayerId, GraphError> {
    net.add(name, Opaque::new("slice", Shape::sequence(steps, FEATURES)), [tokens])
}

/// Adds the encoder. Returns the layer with the attention keys, both raw and projected.
fn encoder(net: &mut LayerGraph, tokens: LayerId, count: usize, steps: usize) -> Result<LayerId, GraphError> {
    let words: Vec<LayerId> = (0..count)
        .map(|chunk| view(net, format!("source.{chunk}"), tokens, steps))
        .collect::<Result<_, _>>()?;
    let (mut forward, mut backward) = (Vec::new(), Vec::new());
    for (chunk, &words) in words.iter().enumerate().rev() {
        layer(1).add(net, format!("encoder.0.reverse.{chunk}"), steps, &[words], &mut backward)?;
    }
    backward.reverse();
    let mut upper = vec![Vec::new(); UPPER];
    for (chunk, &words) in words.iter().enumerate() {
        let first = layer(1).add(net, format!("encoder.0.{chunk}"), steps, &[words], &mut forward)?;
        let mut below = vec![first, backward[chunk]];
        for (index, chunks) in upper.iter_mut().enumerate() {
            let name = format!("encoder.{}.{chunk}", index + 1);
            below = vec![layer(below.len()).add(net, name, steps, &below, chunks)?];
        }
    }
    let elements = POSITIONS * FEATURES;
    let keys =
        OpaquePass { flops: (2 * elements * FEATURES) as u64, bytes: (4 * 3 * elements) as u64, kernels: 1 };
    let keys = Opaque::new("attention keys", Shape::sequence(POSITIONS, 2 * FEATURES))
        .parameters([LayerTensor::new("linear_k", [FEATURES, FEATURES])])
        .forward(keys)
        .backward(OpaquePass { flops: 2 * keys.flops, bytes: 2 * keys.bytes, kernels: 2 });
    net.add("attention.keys", keys, upper.pop().unwrap_or_default())
}

/// Adds the decoder. Returns the loss of each chunk.
fn decoder(
    net: &mut LayerGraph,
    tokens: LayerId,
    keys: LayerId,
    count: usize,
    steps: usize,
) -> Result<Vec<LayerId>, GraphError> {
    let (mut first, mut upper) = (Vec::new(), vec![Vec::new(); UPPER]);
    let (mut attention, mut classifier) = (None, None);
    let mut losses = Vec::new();
    for chunk in 0..count {
        let words = view(net, format!("target.{chunk}"), tokens, steps)?;
        let queries = layer(1).add(net, format!("decoder.0.{chunk}"), steps, &[words], &mut first)?;
        let context =
            tied(net, format!("attention.{chunk}"), attend(steps), &[queries, keys], &mut attention)?;
        let mut below = queries;
        for (index, chunks) in upper.iter_mut().enumerate() {
            let name = format!("decoder.{}.{chunk}", index + 1);
            below = layer(2).add(net, name, steps, &[below, context], chunks)?;
        }
        let scores =
            tied(net, format!("classifier.{chunk}"), Linear::new(VOCABULARY), &[below], &mut classifier)?;
        // Cross entropy with smoothed labels: one pass over the scores for the sum of exponentials
        // and one for the loss.
        let elements = steps * VOCABULARY;
        let entropy = elementwise("cross entropy", Shape::features(1), 5 * elements, 2 * elements);
        losses.push(net.add(format!("cross_entropy.{chunk}"), entropy, [scores])?);
    }
    Ok(losses)
}

/// Returns the attention of a chunk of the decoder: projection of the queries, scores against all
/// keys, and the weighted mean of the keys. One kernel computes the scores from queries and keys
/// without storing their sums (as in NVIDIA's submissions to `MLPerf`).
fn attend(steps: usize) -> Opaque {
    let (queries, scores) = (steps * FEATURES, steps * POSITIONS);
    let (projection, comparison, mean) =
        (2 * queries * FEATURES, 5 * scores * FEATURES, 2 * scores * FEATURES);
    let flops = (projection + comparison + mean + 5 * scores) as u64;
    let bytes = (4 * (4 * queries + 2 * POSITIONS * FEATURES + 5 * scores)) as u64;
    Opaque::new("attention", Shape::sequence(steps, FEATURES))
        .parameters([
            LayerTensor::new("linear_q", [FEATURES, FEATURES]),
            LayerTensor::new("linear_att", [FEATURES]),
            LayerTensor::new("normalize_scalar", [1]),
            LayerTensor::new("normalize_bias", [FEATURES]),
        ])
        .forward(OpaquePass { flops, bytes, kernels: 4 })
        .backward(OpaquePass { flops: 2 * flops, bytes: 2 * bytes, kernels: 8 })
        .saved_bytes((4 * (queries + scores)) as u64)
}

/// Adds a layer that shares its parameters with the layer in `owner`, or becomes the owner if there
/// is none.
fn tied(
    net: &mut LayerGraph,
    name: String,
    kind: impl Into<LayerKind>,
    inputs: &[LayerId],
    owner: &mut Option<LayerId>,
) -> Result<LayerId, GraphError> {
    if let Some(owner) = *owner {
        return net.add_tied(name, kind, inputs, owner);
    }
    let added = net.add(name, kind, inputs)?;
    *owner = Some(added);
    Ok(added)
}

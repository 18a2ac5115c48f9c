//! LSTM-8192-1024 ("BIG LSTM") of Jozefowicz et al. (2016), "Exploring the Limits of Language
//! Modeling".
//!
//! Two LSTM layers of 8192 cells with projections to 1024 features run over the 20 words of a
//! sample. A *step* is one word. Input words have 1024 features. The softmax is over 8192 words,
//! sampled in each iteration from the 793,471 words of the One Billion Word Benchmark. Sizes are
//! those of the authors' code, `rafaljozefowicz/lm`, and of NVIDIA's fork `okuchaiev/f-lm`, which
//! calls this network BIGLSTM.
//!
//! Of the 1.8 billion published parameters, 151 million belong to the LSTM layers; the rest are two
//! word tables of 813 million each. An iteration touches a few thousand rows of the tables, their
//! gradients are sparse, and the authors' code divides the tables among all GPUs. As parameters of
//! this graph, their gradients would be all-reduced in full. They are therefore represented
//! differently:
//! - input words: their rows count as bytes that the embedding reads and writes;
//! - sampled words: their 8192 rows, the same on every GPU, are parameters of the softmax with an
//!   ordinary gradient;
//! - target words: their rows count as bytes that the loss reads and writes.
//!
//! Two costs are not counted: the memory of the tables, and the transfer of rows from the GPUs that
//! store them. For one sample, the transfer has as many bytes as the output of an LSTM layer.
//!
//! The LSTM layers are [opaque](crate::Opaque), one for each chunk of steps: the network can be
//! planned and simulated, but not trained.

use super::lstm::{Lstm, chunks, elementwise};
use crate::{GraphError, LayerGraph, LayerTensor, Opaque, OpaquePass, Shape};

const FEATURES: usize = 1024;
const POSITIONS: usize = 20;
const SAMPLED: usize = 8192;
/// Default number of steps in a chunk.
const STEPS: usize = 4;

const LAYER: Lstm = Lstm { inputs: FEATURES, cells: 8192, projection: Some(FEATURES), biases: 1 };

/// Builds the network under the given name, in chunks of 4 steps. Its layers fit their inputs, so
/// that no error is returned.
pub(super) fn big_lstm(name: &str) -> Result<LayerGraph, GraphError> {
    big_lstm_in_chunks(name, STEPS)
}

/// Builds the network under the given name, in chunks of `steps` steps.
///
/// # Errors
/// [`GraphError::Shape`] if `steps` does not divide 20.
pub(super) fn big_lstm_in_chunks(name: &str, steps: usize) -> Result<LayerGraph, GraphError> {
    let count = chunks(name, POSITIONS, steps)?;
    let mut net = LayerGraph::new(name, Shape::features(POSITIONS))?;
    let (mut lower, mut upper) = (Vec::new(), Vec::new());
    let (mut entropies, mut owner) = (Vec::new(), None);
    for chunk in 0..count {
        let rows = steps * FEATURES;
        let words = elementwise("embedding rows", Shape::sequence(steps, FEATURES), 0, 2 * rows);
        let words = net.add(format!("embedding.{chunk}"), words, [net.input()])?;
        let below = LAYER.add(&mut net, format!("lstm.0.{chunk}"), steps, &[words], &mut lower)?;
        let above = LAYER.add(&mut net, format!("lstm.1.{chunk}"), steps, &[below], &mut upper)?;
        let name = format!("softmax.{chunk}");
        let added = match owner {
            None => net.add(name, sampled_softmax(steps), [above])?,
            Some(owner) => net.add_tied(name, sampled_softmax(steps), [above], owner)?,
        };
        owner = owner.or(Some(added));
        entropies.push(added);
    }
    let loss = elementwise("mean", Shape::features(1), count, count + 1).loss(POSITIONS);
    net.add("loss", loss, entropies)?;
    Ok(net)
}

/// Returns the layer that scores the sampled words and the target word and computes their cross
/// entropy.
fn sampled_softmax(steps: usize) -> Opaque {
    let (features, scores) = (steps * FEATURES, steps * (SAMPLED + 1));
    let flops = (2 * FEATURES * scores + 5 * scores) as u64;
    // Features, the row of each target word, and the scores (written once, read for the sum and for
    // the loss).
    let bytes = (4 * (2 * features + 3 * scores)) as u64;
    Opaque::new("sampled softmax", Shape::features(1))
        .parameters([
            LayerTensor::new("sampled.weight", [SAMPLED, FEATURES]),
            LayerTensor::new("sampled.bias", [SAMPLED]),
        ])
        .forward(OpaquePass { flops, bytes, kernels: 3 })
        .backward(OpaquePass { flops: 2 * flops, bytes: 2 * bytes, kernels: 4 })
        .saved_bytes((4 * scores) as u64)
}

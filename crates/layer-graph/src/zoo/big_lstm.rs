//! LSTM-8192-1024 ("BIG LSTM") of Jozefowicz et al., 2016, "Exploring the Limits of Language Modeling": two LSTM layers of 8192 cells with
//! projections to 1024 features, over 20 steps, words as 1024 features at both ends, and a softmax over 8192 words that are sampled in each
//! iteration, of the 793,471 of the One Billion Word Benchmark. (Sizes as in the authors' code, `rafaljozefowicz/lm`, and in NVIDIA's
//! fork of it, `okuchaiev/f-lm`, which calls this one BIGLSTM.)
//!
//! The published 1.8 billion parameters are 151 million of the LSTM layers and two tables of words with 813 million each. An iteration touches a
//! few thousand rows of these, whose gradients are sparse, and the authors' code keeps them in shards, on all GPUs together. So the tables are no parameters of
//! this graph, which would be summed up whole:
//! - words that are read: their rows count as what the embedding of a sample reads and writes, and gives back as a gradient;
//! - words that are sampled: their 8192 rows, the same ones on every GPU, are parameters of the softmax, and their gradient is reduced as any other;
//! - words to predict: their rows count as what the loss of a sample reads and writes.
//!
//! What is not counted is the memory of the shards, and the way of the single rows from the GPU that has them: for a sample as much as the
//! output of a layer.
//!
//! The LSTM layers are [opaque](crate::Opaque), one for each chunk of steps: the network is planned and simulated, not trained.

use super::lstm::{Lstm, chunks, elementwise};
use crate::{GraphError, LayerGraph, LayerTensor, Opaque, OpaquePass, Shape};

const FEATURES: usize = 1024;
const POSITIONS: usize = 20;
const SAMPLED: usize = 8192;
/// Steps of a chunk, where nobody says how many.
const STEPS: usize = 4;

const LAYER: Lstm = Lstm { inputs: FEATURES, cells: 8192, projection: Some(FEATURES), biases: 1 };

pub(super) fn big_lstm(name: &str) -> Result<LayerGraph, GraphError> {
    big_lstm_in_chunks(name, STEPS)
}

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

/// The scores of the words that are sampled and of the one to predict, and the cross entropy of these.
fn sampled_softmax(steps: usize) -> Opaque {
    let (features, scores) = (steps * FEATURES, steps * (SAMPLED + 1));
    let flops = (2 * FEATURES * scores + 5 * scores) as u64;
    // The features, the row of each word to predict, and the scores: written, and read for the sum and for the loss.
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

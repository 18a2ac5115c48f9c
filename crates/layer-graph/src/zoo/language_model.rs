//! The medium LSTM language model of Zaremba, Sutskever and Vinyals, "Recurrent Neural Network
//! Regularization" (2014): two layers of 650 cells over 35 words of the Penn Treebank, half of the
//! features dropped.
//!
//! Samples are words; labels are the next word at each position. Layers have PyTorch's two biases,
//! and a sequence begins with a state of zeros.

use crate::{
    Dropout, Embedding, GraphError, LayerGraph, LayerKind, Linear, Recurrence, RecurrentCell, Shape,
};

const VOCABULARY: usize = 10_000;
const POSITIONS: usize = 35;
const FEATURES: usize = 650;
const DROPOUT: f64 = 0.5;

/// Builds the network under the given name. Its layers fit their inputs, so that no error is
/// returned.
pub(super) fn lstm(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::features(POSITIONS))?;
    let mut x = net.add("embedding", Embedding::new(VOCABULARY, FEATURES), [net.input()])?;
    x = net.add("dropout", Dropout::new(DROPOUT), [x])?;
    for level in 0..2 {
        if level > 0 {
            x = net.add(format!("lstm.dropout_l{}", level - 1), Dropout::new(DROPOUT), [x])?;
        }
        x = net.add(format!("lstm.ih_l{level}"), Linear::new(4 * FEATURES), [x])?;
        x = net.add(format!("lstm.hh_l{level}"), Recurrence::new(RecurrentCell::Lstm), [x])?;
    }
    x = net.add("dropout.2", Dropout::new(DROPOUT), [x])?;
    x = net.add("decoder", Linear::new(VOCABULARY), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

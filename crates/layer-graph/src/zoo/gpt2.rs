//! GPT-2 small (Radford et al., 2019) over sequences of 1024 tokens.
//!
//! Samples are token ids; labels are the next token at each position. Dropout is as published,
//! except that attention weights are not dropped: [`MultiHeadAttention`](crate::MultiHeadAttention)
//! has no dropout.

use super::transformer::Block;
use crate::{Dropout, Embedding, GraphError, LayerGraph, LayerKind, Linear, PositionEmbedding, Shape};

const VOCABULARY: usize = 50_257;
const CONTEXT: usize = 1024;
const FEATURES: usize = 768;
/// Number of blocks of GPT-2 small.
pub(super) const BLOCKS: usize = 12;
const DROPOUT: f64 = 0.1;

/// Builds GPT-2 with the features of GPT-2 small and `blocks` blocks under the given name. Its
/// layers fit their inputs, so that no error is returned.
pub(super) fn gpt2(name: &str, blocks: usize) -> Result<LayerGraph, GraphError> {
    let block = Block {
        features: FEATURES,
        heads: 12,
        causal: true,
        epsilon: 1e-5,
        activation: LayerKind::GeluTanh,
        dropout: Some(DROPOUT),
    };
    let mut net = LayerGraph::new(name, Shape::features(CONTEXT))?;
    let input = net.input();
    let tokens = net.add("tokens", Embedding::new(VOCABULARY, FEATURES), [input])?;
    let mut x = net.add("positions", PositionEmbedding::new(CONTEXT), [tokens])?;
    x = net.add("dropout", Dropout::new(DROPOUT), [x])?;
    for index in 0..blocks {
        x = block.add(&mut net, &format!("block{}", index + 1), x)?;
    }
    x = net.add("norm", block.norm(), [x])?;
    x = net.add_tied("head", Linear::new(VOCABULARY).without_bias(), [x], tokens)?;
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    Ok(net)
}

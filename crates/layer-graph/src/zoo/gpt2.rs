//! GPT-2 (Radford et al., 2019) over sequences of 1024 tokens.
//!
//! Samples are token ids; labels are the next token at each position. Dropout is as published,
//! except that attention weights are not dropped.

use super::transformer::Block;
use crate::{Dropout, Embedding, GraphError, LayerGraph, LayerKind, Linear, PositionEmbedding, Shape};

const VOCABULARY: usize = 50_257;
const CONTEXT: usize = 1024;
const DROPOUT: f64 = 0.1;

/// Size of a GPT-2 network.
#[derive(Debug, Clone, Copy)]
pub(super) struct Size {
    /// Number of transformer blocks.
    pub(super) blocks: usize,
    /// Number of features of each position.
    pub(super) features: usize,
    /// Number of attention heads. Divides `features`.
    pub(super) heads: usize,
}

/// Size of GPT-2 small.
pub(super) const SMALL: Size = Size { blocks: 12, features: 768, heads: 12 };
/// Size of GPT-2 XL.
pub(super) const XL: Size = Size { blocks: 48, features: 1600, heads: 25 };

/// Builds GPT-2 of the given size under the given name. Its layers fit their inputs, so that no
/// error is returned.
pub(super) fn gpt2(name: &str, size: Size) -> Result<LayerGraph, GraphError> {
    let Size { blocks, features, heads } = size;
    let block = Block {
        features,
        heads,
        causal: true,
        epsilon: 1e-5,
        activation: LayerKind::GeluTanh,
        dropout: Some(DROPOUT),
    };
    let mut net = LayerGraph::new(name, Shape::features(CONTEXT))?;
    let input = net.input();
    let tokens = net.add("tokens", Embedding::new(VOCABULARY, features), [input])?;
    let mut x = net.add("positions", PositionEmbedding::new(CONTEXT), [tokens])?;
    x = net.add("dropout", Dropout::new(DROPOUT), [x])?;
    for index in 0..blocks {
        x = block.add(&mut net, &format!("block{}", index + 1), x)?;
    }
    x = net.add("norm", block.norm(), [x])?;
    x = net.add_tied("head", Linear::new(VOCABULARY).without_bias(), [x], tokens)?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

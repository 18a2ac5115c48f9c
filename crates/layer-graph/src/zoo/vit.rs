//! ViT-B/16 (Dosovitskiy et al., 2021) for images of 224x224, split into patches of 16x16, without
//! dropout, as in torchvision.

use super::transformer::Block;
use crate::{
    Conv2d, GraphError, LayerGraph, LayerKind, Linear, Permute, PositionEmbedding, Reshape, Select, Shape,
};

const FEATURES: usize = 768;
const BLOCKS: usize = 12;
const PATCH: usize = 16;
/// Number of patches of an image.
const PATCHES: usize = (224 / PATCH) * (224 / PATCH);

/// Builds ViT-B/16 under the given name. Its layers fit their inputs, so that no error is returned.
pub(super) fn vit_b_16(name: &str) -> Result<LayerGraph, GraphError> {
    let block = Block {
        features: FEATURES,
        heads: 12,
        causal: false,
        epsilon: 1e-6,
        activation: LayerKind::Gelu,
        dropout: None,
    };
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let input = net.input();
    let mut x = net.add("conv_proj", Conv2d::new(FEATURES, PATCH).stride(PATCH), [input])?;
    x = net.add("conv_proj.flatten", Reshape { output: Shape::new([FEATURES, PATCHES]) }, [x])?;
    x = net.add("conv_proj.permute", Permute { order: vec![1, 0] }, [x])?;
    x = net.add("class_token", LayerKind::ClassToken, [x])?;
    x = net.add("encoder.pos_embedding", PositionEmbedding::new(PATCHES + 1), [x])?;
    for index in 0..BLOCKS {
        x = block.add(&mut net, &format!("encoder.layers.encoder_layer_{index}"), x)?;
    }
    x = net.add("encoder.ln", block.norm(), [x])?;
    x = net.add("encoder.select", Select { index: 0 }, [x])?;
    x = net.add("heads.head", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

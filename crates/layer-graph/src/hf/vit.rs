//! Vision transformers (Dosovitskiy et al., 2021).

use serde::Deserialize;

use super::{Configured, Labels, activation, add_dropout, check_blocks, dropout, yes};
use crate::{
    Conv2d, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear, MultiHeadAttention, Permute,
    PositionEmbedding, Reshape, Select, Shape,
};

/// Class of `transformers` whose last layers are known.
pub(super) const CLASSES: [&str; 1] = ["ViTForImageClassification"];

/// Fields of the configuration that determine the layers.
#[derive(Deserialize)]
pub(super) struct Config {
    hidden_size: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default)]
    hidden_dropout_prob: f64,
    #[serde(default)]
    attention_probs_dropout_prob: f64,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "image")]
    image_size: Size,
    #[serde(default = "patch")]
    patch_size: Size,
    #[serde(default = "three")]
    num_channels: usize,
    #[serde(default = "yes")]
    qkv_bias: bool,
}

/// Size of an image or a patch in pixels.
#[derive(Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Size {
    /// Side of a square.
    Side(usize),
    /// Height and width.
    Sides([usize; 2]),
}

impl Size {
    fn sides(self) -> [usize; 2] {
        match self {
            Self::Side(side) => [side; 2],
            Self::Sides(sides) => sides,
        }
    }
}

fn gelu() -> String {
    "gelu".into()
}

fn epsilon() -> f64 {
    1e-12
}

fn image() -> Size {
    Size::Side(224)
}

fn patch() -> Size {
    Size::Side(16)
}

fn three() -> usize {
    3
}

/// Builds the network, which classifies images.
pub(super) fn build(name: &str, config: &Config, labels: &Labels) -> Result<Configured, GraphError> {
    check_blocks(config.num_hidden_layers)?;
    let [height, width] = config.image_size.sides();
    let (features, norm) = (config.hidden_size, LayerNorm { epsilon: config.layer_norm_eps });
    let mut net = LayerGraph::new(name, Shape::image(config.num_channels, height, width))?;
    let patch = config.patch_size.sides();
    let patches = Conv2d { stride: patch, ..Conv2d::rectangular(features, patch) };
    let path = "vit.embeddings";
    let mut x = net.add(format!("{path}.patch_embeddings.projection"), patches, [net.input()])?;
    let count: usize = net.layer(x).output_shape().dims()[1..].iter().product();
    let flat = Reshape { output: Shape::new([features, count]) };
    x = net.add(format!("{path}.patch_embeddings.flatten"), flat, [x])?;
    x = net.add(format!("{path}.patch_embeddings.transpose"), Permute { order: vec![1, 0] }, [x])?;
    x = net.add(format!("{path}.cls_token"), LayerKind::ClassToken, [x])?;
    x =
        net.add(format!("{path}.position_embeddings"), PositionEmbedding::new(count.saturating_add(1)), [x])?;
    x = add_dropout(&mut net, format!("{path}.dropout"), config.hidden_dropout_prob, x)?;
    for block in 0..config.num_hidden_layers {
        x = add_block(&mut net, config, &format!("vit.layers.{block}"), x)?;
    }
    x = net.add("vit.layernorm", norm, [x])?;
    x = net.add("select", Select { index: 0 }, [x])?;
    x = net.add("classifier", Linear::new(labels.count()), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(Configured { network: net, left_out: labels.other_loss().into_iter().collect() })
}

/// Adds the layers of a block, and returns the last one.
fn add_block(
    net: &mut LayerGraph,
    config: &Config,
    path: &str,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let mut then =
        |name: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{path}.{name}"), kind, inputs);
    let features = config.hidden_size;
    let norm = || LayerKind::from(LayerNorm { epsilon: config.layer_norm_eps });
    let dropout = dropout(config.hidden_dropout_prob);
    let projection = || LayerKind::from(Linear { out_features: features, bias: config.qkv_bias });

    let mut x = then("layernorm_before", norm(), &[input])?;
    let queries = then("attention.q_proj", projection(), &[x])?;
    let keys = then("attention.k_proj", projection(), &[x])?;
    let values = then("attention.v_proj", projection(), &[x])?;
    let attention = MultiHeadAttention::new(config.num_attention_heads, false)
        .with_dropout(config.attention_probs_dropout_prob);
    x = then("attention", attention.into(), &[queries, keys, values])?;
    x = then("attention.o_proj", Linear::new(features).into(), &[x])?;
    if let Some(dropout) = &dropout {
        x = then("dropout", dropout.clone(), &[x])?;
    }
    let middle = then("add", LayerKind::Add, &[x, input])?;
    x = then("layernorm_after", norm(), &[middle])?;
    x = then("mlp.fc1", Linear::new(config.intermediate_size).into(), &[x])?;
    x = then("mlp.activation_fn", activation(&config.hidden_act)?, &[x])?;
    x = then("mlp.fc2", Linear::new(features).into(), &[x])?;
    if let Some(dropout) = dropout {
        x = then("dropout.2", dropout, &[x])?;
    }
    then("add.2", LayerKind::Add, &[x, middle])
}

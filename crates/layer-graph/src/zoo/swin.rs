//! Swin-T (Liu et al., 2021), as in torchvision, with stochastic depth.
//!
//! Images are channels-last. The attention within windows of 7x7 positions is an
//! [opaque](crate::Opaque) layer between its linear projections: the network can be planned and
//! simulated, but not trained. In every second block the windows are shifted by three positions.

use crate::{
    AdaptiveAvgPool2d, Conv2d, Dropout, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, LayerTensor,
    Linear, Opaque, OpaquePass, Permute, Reshape, Shape,
};

/// Maximum probability of the stochastic depth, which grows linearly from the first block to the
/// last.
const STOCHASTIC_DEPTH: f64 = 0.2;
const NORM: LayerNorm = LayerNorm { epsilon: 1e-5 };
/// Number of channels of the first stage.
const CHANNELS: usize = 96;
/// Number of features of an attention head.
const WIDTH: usize = 32;
/// Side of a window, in positions.
const WINDOW: usize = 7;
/// Number of blocks of each stage. A stage has half of the height and width of the stage before it,
/// and twice the channels.
const STAGES: [usize; 4] = [2, 2, 6, 2];
const ELEMENT_BYTES: usize = 4;

/// Builds Swin-T under the given name, for images of 3x224x224 and 1000 classes. Its layers fit
/// their inputs, so that no error is returned.
pub(super) fn swin_t(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let input = net.input();
    let mut x = net.add("features.0.0", Conv2d::new(CHANNELS, 4).stride(4), [input])?;
    x = net.add("features.0.1", Permute { order: vec![1, 2, 0] }, [x])?;
    x = net.add("features.0.2", NORM, [x])?;
    let last = STAGES.iter().sum::<usize>() - 1;
    let mut index = 0;
    for (stage, blocks) in STAGES.into_iter().enumerate() {
        let (side, channels) = (56 >> stage, CHANNELS << stage);
        if stage > 0 {
            x = merge_patches(&mut net, &format!("features.{}", 2 * stage), side, channels, x)?;
        }
        for block in 0..blocks {
            let block = Block {
                label: format!("features.{}.{block}", 2 * stage + 1),
                side,
                channels,
                // One window covers the whole image of the last stage.
                is_shifted: block % 2 == 1 && side > WINDOW,
                probability: STOCHASTIC_DEPTH * f64::from(index) / last as f64,
            };
            x = block.add(&mut net, x)?;
            index += 1;
        }
    }
    x = net.add("norm", NORM, [x])?;
    x = net.add("permute", Permute { order: vec![2, 0, 1] }, [x])?;
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    x = net.add("head", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Adds the layers between two stages: the channels of 2x2 neighbouring positions, column by
/// column, become those of one position, and a linear layer halves their number. `side` and
/// `channels` are those of the output.
fn merge_patches(
    net: &mut LayerGraph,
    label: &str,
    side: usize,
    channels: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let blocks = Reshape { output: Shape::new([side, 2, side, 2, channels / 2]) };
    let mut x = net.add(format!("{label}.view"), blocks, [input])?;
    x = net.add(format!("{label}.permute"), Permute { order: vec![0, 2, 3, 1, 4] }, [x])?;
    let merged = Reshape { output: Shape::new([side, side, 2 * channels]) };
    x = net.add(format!("{label}.reshape"), merged, [x])?;
    x = net.add(format!("{label}.norm"), NORM, [x])?;
    net.add(format!("{label}.reduction"), Linear::new(channels).without_bias(), [x])
}

/// Transformer block over an image of `side` x `side` positions.
struct Block {
    /// Beginning of the names of its layers.
    label: String,
    side: usize,
    channels: usize,
    /// Whether the windows are shifted.
    is_shifted: bool,
    /// Probability of the stochastic depth before each residual sum; 0 adds no layers.
    probability: f64,
}

impl Block {
    /// Adds the layers of the block, and returns the last one.
    fn add(&self, net: &mut LayerGraph, input: LayerId) -> Result<LayerId, GraphError> {
        let mut then = |part: &str, kind: LayerKind, inputs: &[LayerId]| {
            net.add(format!("{}.{part}", self.label), kind, inputs)
        };
        let depth = Dropout { probability: self.probability, of_samples: true };
        let depth = Some(LayerKind::from(depth)).filter(|_| self.probability > 0.0);
        let mut x = then("norm1", NORM.into(), &[input])?;
        x = then("attn.qkv", Linear::new(3 * self.channels).into(), &[x])?;
        x = then("attn", self.attention().into(), &[x])?;
        x = then("attn.proj", Linear::new(self.channels).into(), &[x])?;
        if let Some(depth) = &depth {
            x = then("stochastic_depth", depth.clone(), &[x])?;
        }
        let middle = then("add", LayerKind::Add, &[input, x])?;
        x = then("norm2", NORM.into(), &[middle])?;
        x = then("mlp.0", Linear::new(4 * self.channels).into(), &[x])?;
        x = then("mlp.1", LayerKind::Gelu, &[x])?;
        x = then("mlp.3", Linear::new(self.channels).into(), &[x])?;
        if let Some(depth) = depth {
            x = then("stochastic_depth.2", depth, &[x])?;
        }
        then("add.2", LayerKind::Add, &[middle, x])
    }

    /// Returns the attention within windows, with a learned bias for each head and relative
    /// position.
    ///
    /// Kernels are those of torchvision's implementation: a copy of the windows, the products of
    /// queries and keys, the sum with the bias, the softmax, the product with the values, and a
    /// copy back. Shifted windows add two rotations of the image and a mask.
    fn attention(&self) -> Opaque {
        let (heads, keys) = (self.channels / WIDTH, WINDOW * WINDOW);
        let elements = self.side * self.side * self.channels;
        let scores = self.side * self.side * heads * keys;
        let [masks, rotations] = if self.is_shifted { [1, 2] } else { [0, 0] };
        // The factor of the queries, the bias, the mask, and 5 operations for the softmax.
        let flops = 4 * keys * elements + elements + (6 + masks) * scores;
        let moved = (12 + 2 * rotations) * elements + (6 + 2 * masks) * scores;
        let kernels = if self.is_shifted { 9 } else { 6 };
        let forward = OpaquePass { flops: flops as u64, bytes: (moved * ELEMENT_BYTES) as u64, kernels };
        let backward =
            OpaquePass { flops: 2 * forward.flops, bytes: 2 * forward.bytes, kernels: 2 * kernels };
        let offsets = 2 * WINDOW - 1;
        Opaque::new("window attention", Shape::new([self.side, self.side, self.channels]))
            .parameters([LayerTensor::new("relative_position_bias_table", [offsets * offsets, heads])])
            .forward(forward)
            .backward(backward)
            .saved_bytes(((3 * elements + scores) * ELEMENT_BYTES) as u64)
    }
}

//! EfficientNet-B0 (Tan and Le, 2019), as in torchvision: inverted residual blocks with depthwise
//! convolutions and squeeze-and-excitation (Hu et al., 2018), and stochastic depth.

use crate::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, GraphError, LayerGraph, LayerId, LayerKind, Linear, Shape,
};

/// Maximum probability of the stochastic depth, which grows in proportion to the block's index.
const STOCHASTIC_DEPTH: f64 = 0.2;

/// Blocks with the same number of output channels.
struct Stage {
    /// Factor by which the first convolution of a block increases the number of channels. A block
    /// with factor 1 has no such convolution.
    expansion: usize,
    /// Side of the kernel of the depthwise convolution.
    kernel: usize,
    /// Stride of the depthwise convolution of the first block.
    stride: usize,
    /// Number of output channels.
    channels: usize,
    blocks: usize,
}

const fn stage(expansion: usize, kernel: usize, stride: usize, channels: usize, blocks: usize) -> Stage {
    Stage { expansion, kernel, stride, channels, blocks }
}

/// Stages of EfficientNet-B0.
const B0: [Stage; 7] = [
    stage(1, 3, 1, 16, 1),
    stage(6, 3, 2, 24, 2),
    stage(6, 5, 2, 40, 2),
    stage(6, 3, 2, 80, 3),
    stage(6, 5, 1, 112, 3),
    stage(6, 5, 2, 192, 4),
    stage(6, 3, 1, 320, 1),
];

/// Builds EfficientNet-B0 under the given name, for images of 3x224x224 and 1000 classes. Its
/// layers fit their inputs, so that no error is returned.
pub(super) fn efficientnet_b0(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let input = net.input();
    let mut x = conv_norm_silu(&mut net, "features.0", Conv2d::new(32, 3).stride(2).padding(1), input)?;
    let all_blocks: usize = B0.iter().map(|stage| stage.blocks).sum();
    let mut index = 0;
    for (stage, number) in B0.iter().zip(1..) {
        for block in 0..stage.blocks {
            let label = format!("features.{number}.{block}");
            let stride = if block == 0 { stage.stride } else { 1 };
            let probability = STOCHASTIC_DEPTH * f64::from(index) / all_blocks as f64;
            x = inverted_residual(&mut net, &label, stage, stride, probability, x)?;
            index += 1;
        }
    }
    x = conv_norm_silu(&mut net, "features.8", Conv2d::new(1280, 1), x)?;
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    x = net.add("classifier.0", Dropout::new(0.2), [x])?;
    x = net.add("classifier.1", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Adds an inverted residual block. If the shape does not change, it ends in a stochastic depth of
/// the given probability and the residual sum.
fn inverted_residual(
    net: &mut LayerGraph,
    label: &str,
    stage: &Stage,
    stride: usize,
    probability: f64,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let in_channels = net.layer(input).output_shape().dims()[0];
    let channels = in_channels * stage.expansion;
    let mut x = input;
    let mut parts = (0..).map(|part: usize| format!("{label}.block.{part}"));
    let mut part = || parts.next().unwrap_or_default();
    if stage.expansion > 1 {
        x = conv_norm_silu(net, &part(), Conv2d::new(channels, 1), x)?;
    }
    let depthwise = Conv2d::new(channels, stage.kernel).padding(stage.kernel / 2);
    x = conv_norm_silu(net, &part(), depthwise.stride(stride).groups(channels), x)?;
    x = squeeze_excitation(net, &part(), in_channels / 4, x)?;
    x = conv_norm(net, &part(), Conv2d::new(stage.channels, 1), x)?;
    if stride > 1 || in_channels != stage.channels {
        return Ok(x);
    }
    let depth = Dropout { probability, of_samples: true };
    x = net.add(format!("{label}.stochastic_depth"), depth, [x])?;
    net.add(format!("{label}.add"), LayerKind::Add, [x, input])
}

/// Adds the product of each channel with a number between 0 and 1, which two layers compute from
/// the means of all channels. The first of them has `squeezed` outputs.
fn squeeze_excitation(
    net: &mut LayerGraph,
    label: &str,
    squeezed: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let channels = net.layer(input).output_shape().dims()[0];
    let mut x = net.add(format!("{label}.avgpool"), AdaptiveAvgPool2d { output: [1, 1] }, [input])?;
    x = net.add(format!("{label}.fc1"), Conv2d::new(squeezed, 1), [x])?;
    x = net.add(format!("{label}.activation"), LayerKind::Silu, [x])?;
    x = net.add(format!("{label}.fc2"), Conv2d::new(channels, 1), [x])?;
    x = net.add(format!("{label}.scale_activation"), LayerKind::Sigmoid, [x])?;
    net.add(format!("{label}.mul"), LayerKind::Multiply, [input, x])
}

fn conv_norm_silu(
    net: &mut LayerGraph,
    label: &str,
    conv: Conv2d,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let x = conv_norm(net, label, conv, input)?;
    net.add(format!("{label}.2"), LayerKind::Silu, [x])
}

fn conv_norm(net: &mut LayerGraph, label: &str, conv: Conv2d, input: LayerId) -> Result<LayerId, GraphError> {
    let x = net.add(format!("{label}.0"), conv.without_bias(), [input])?;
    net.add(format!("{label}.1"), BatchNorm::default(), [x])
}

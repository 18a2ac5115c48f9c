//! Residual networks (He et al., 2016) with the stride in the 3x3 convolution of a bottleneck, wide
//! residual networks (Zagoruyko and Komodakis, 2016) and `ResNeXt` (Xie et al., 2017).

use crate::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, GraphError, LayerGraph, LayerId, LayerKind, Linear, Pool2d, Shape,
};

/// Configuration of a residual network: the number and the kind of its residual blocks.
pub(super) struct Config {
    /// Number of residual blocks in each of the four stages.
    blocks: [usize; 4],
    block: Block,
}

/// Convolutions of a residual block.
enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3 and 1x1 convolutions. The first two have `widening` times the channels of
    /// ResNet-50's, and the second has `groups` groups.
    Bottleneck { widening: usize, groups: usize },
}

/// Configuration of ResNet-18.
pub(super) const RESNET18: Config = Config { blocks: [2, 2, 2, 2], block: Block::Basic };
/// Configuration of ResNet-34.
pub(super) const RESNET34: Config = Config { blocks: [3, 4, 6, 3], block: Block::Basic };
/// Configuration of ResNet-50.
pub(super) const RESNET50: Config = bottlenecks([3, 4, 6, 3], 1, 1);
/// Configuration of ResNet-101.
pub(super) const RESNET101: Config = bottlenecks([3, 4, 23, 3], 1, 1);
/// Configuration of ResNet-152.
pub(super) const RESNET152: Config = bottlenecks([3, 8, 36, 3], 1, 1);
/// Configuration of `ResNeXt`-101 with 32 groups of 4 channels.
pub(super) const RESNEXT101_32X4D: Config = bottlenecks([3, 4, 23, 3], 2, 32);
/// Configuration of Wide ResNet-101-2.
pub(super) const WRN101_2: Config = bottlenecks([3, 4, 23, 3], 2, 1);

const fn bottlenecks(blocks: [usize; 4], widening: usize, groups: usize) -> Config {
    Config { blocks, block: Block::Bottleneck { widening, groups } }
}

/// Builds the residual network of a configuration under the given name, for images of 3x224x224 and
/// 1000 classes. The layers of the configurations in this file fit their inputs, so that no error
/// is returned.
pub(super) fn resnet(name: &str, config: &Config) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let stem = Conv2d::new(64, 7).stride(2).padding(3);
    let input = net.input();
    let mut x = conv_norm(&mut net, ["conv1", "bn1"], stem, input)?;
    x = net.add("relu", LayerKind::Relu, [x])?;
    x = net.add("maxpool", LayerKind::MaxPool2d(Pool2d::new(3, 2).padding(1)), [x])?;
    for (stage, &blocks) in config.blocks.iter().enumerate() {
        let width = 64 << stage;
        for block in 0..blocks {
            let label = format!("layer{}.{block}", stage + 1);
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = residual(&mut net, &label, &config.block, width, stride, x)?;
        }
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    x = net.add("fc", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Adds a residual block: its convolutions, and a projection of the input if the shape changes.
fn residual(
    net: &mut LayerGraph,
    label: &str,
    block: &Block,
    width: usize,
    stride: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let convolutions = match block {
        Block::Basic => {
            vec![Conv2d::new(width, 3).stride(stride).padding(1), Conv2d::new(width, 3).padding(1)]
        }
        Block::Bottleneck { widening, groups } => vec![
            Conv2d::new(width * widening, 1),
            Conv2d::new(width * widening, 3).stride(stride).padding(1).groups(*groups),
            Conv2d::new(width * 4, 1),
        ],
    };
    let last = convolutions.len();
    let mut x = input;
    for (convolution, i) in convolutions.into_iter().zip(1..) {
        let names = [format!("{label}.conv{i}"), format!("{label}.bn{i}")];
        x = conv_norm(net, names, convolution, x)?;
        if i < last {
            x = net.add(format!("{label}.relu{i}"), LayerKind::Relu, [x])?;
        }
    }
    let out_channels = net.layer(x).output_shape().dims()[0];
    let mut shortcut = input;
    if stride != 1 || net.layer(input).output_shape().dims()[0] != out_channels {
        let projection = Conv2d::new(out_channels, 1).stride(stride);
        let names = [0, 1].map(|i| format!("{label}.downsample.{i}"));
        shortcut = conv_norm(net, names, projection, input)?;
    }
    let sum = net.add(format!("{label}.add"), LayerKind::Add, [x, shortcut])?;
    net.add(format!("{label}.relu{last}"), LayerKind::Relu, [sum])
}

fn conv_norm<N: Into<String>>(
    net: &mut LayerGraph,
    [conv_name, norm_name]: [N; 2],
    conv: Conv2d,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let x = net.add(conv_name, conv.without_bias(), [input])?;
    net.add(norm_name, BatchNorm::default(), [x])
}

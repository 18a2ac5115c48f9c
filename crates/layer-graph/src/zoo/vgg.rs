//! VGG (Simonyan and Zisserman, 2015), configurations A, B, D and E, without batch normalisation.

use crate::{AdaptiveAvgPool2d, Conv2d, Dropout, GraphError, LayerGraph, LayerKind, Linear, Pool2d, Shape};

/// Convolutions in each of the five blocks.
pub(super) const VGG11: [usize; 5] = [1, 1, 2, 2, 2];
pub(super) const VGG13: [usize; 5] = [2, 2, 2, 2, 2];
pub(super) const VGG16: [usize; 5] = [2, 2, 3, 3, 3];
pub(super) const VGG19: [usize; 5] = [2, 2, 4, 4, 4];

const CHANNELS: [usize; 5] = [64, 128, 256, 512, 512];

pub(super) fn vgg(name: &str, blocks: &[usize; 5]) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let mut x = net.input();
    for (block, (&convolutions, channels)) in blocks.iter().zip(CHANNELS).enumerate() {
        for i in 0..convolutions {
            let label = format!("{}_{}", block + 1, i + 1);
            x = net.add(format!("conv{label}"), Conv2d::new(channels, 3).padding(1), [x])?;
            x = net.add(format!("relu{label}"), LayerKind::Relu, [x])?;
        }
        x = net.add(format!("pool{}", block + 1), LayerKind::MaxPool2d(Pool2d::new(2, 2)), [x])?;
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [7, 7] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    for i in 6..8 {
        x = net.add(format!("fc{i}"), Linear::new(4096), [x])?;
        x = net.add(format!("relu{i}"), LayerKind::Relu, [x])?;
        x = net.add(format!("dropout{i}"), Dropout { probability: 0.5 }, [x])?;
    }
    x = net.add("fc8", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::SoftmaxCrossEntropy, [x])?;
    Ok(net)
}

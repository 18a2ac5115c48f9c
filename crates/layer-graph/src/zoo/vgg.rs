//! VGG (Simonyan and Zisserman, 2015), configurations A, B, D and E, without batch normalisation.

use crate::{AdaptiveAvgPool2d, Conv2d, Dropout, GraphError, LayerGraph, LayerKind, Linear, Pool2d, Shape};

/// Number of convolutions of each block of VGG-11.
pub(super) const VGG11: [usize; 5] = [1, 1, 2, 2, 2];
/// Number of convolutions of each block of VGG-13.
pub(super) const VGG13: [usize; 5] = [2, 2, 2, 2, 2];
/// Number of convolutions of each block of VGG-16.
pub(super) const VGG16: [usize; 5] = [2, 2, 3, 3, 3];
/// Number of convolutions of each block of VGG-19.
pub(super) const VGG19: [usize; 5] = [2, 2, 4, 4, 4];

const CHANNELS: [usize; 5] = [64, 128, 256, 512, 512];

/// Builds a VGG network under the given name, for images of 3x224x224 and 1000 classes. `blocks` is
/// the number of convolutions of each of the five blocks. Its layers fit their inputs, so that no
/// error is returned.
pub(super) fn vgg(name: &str, blocks: &[usize; 5]) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let mut x = net.input();
    let mut features = 0..;
    let mut feature = |net: &mut LayerGraph, kind: LayerKind, x| {
        net.add(format!("features.{}", features.next().unwrap_or_default()), kind, [x])
    };
    for (&convolutions, channels) in blocks.iter().zip(CHANNELS) {
        for _ in 0..convolutions {
            x = feature(&mut net, Conv2d::new(channels, 3).padding(1).into(), x)?;
            x = feature(&mut net, LayerKind::Relu, x)?;
        }
        x = feature(&mut net, LayerKind::MaxPool2d(Pool2d::new(2, 2)), x)?;
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [7, 7] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    for first in [0, 3] {
        x = net.add(format!("classifier.{first}"), Linear::new(4096), [x])?;
        x = net.add(format!("classifier.{}", first + 1), LayerKind::Relu, [x])?;
        x = net.add(format!("classifier.{}", first + 2), Dropout::new(0.5), [x])?;
    }
    x = net.add("classifier.6", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

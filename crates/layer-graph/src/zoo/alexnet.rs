//! AlexNet (Krizhevsky, Sutskever and Hinton, 2012) for one GPU, as in "One weird trick for
//! parallelizing convolutional neural networks" (Krizhevsky, 2014) and in torchvision.

use crate::{AdaptiveAvgPool2d, Conv2d, Dropout, GraphError, LayerGraph, LayerKind, Linear, Pool2d, Shape};

/// Builds AlexNet under the given name, for images of 3x224x224 and 1000 classes. Its layers fit
/// their inputs, so that no error is returned.
pub(super) fn alexnet(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let convolutions = [
        (Conv2d::new(64, 11).stride(4).padding(2), true),
        (Conv2d::new(192, 5).padding(2), true),
        (Conv2d::new(384, 3).padding(1), false),
        (Conv2d::new(256, 3).padding(1), false),
        (Conv2d::new(256, 3).padding(1), true),
    ];
    let mut x = net.input();
    let mut features = 0..;
    let mut feature = |net: &mut LayerGraph, kind: LayerKind, x| {
        net.add(format!("features.{}", features.next().unwrap_or_default()), kind, [x])
    };
    for (convolution, pooled) in convolutions {
        x = feature(&mut net, convolution.into(), x)?;
        x = feature(&mut net, LayerKind::Relu, x)?;
        if pooled {
            x = feature(&mut net, LayerKind::MaxPool2d(Pool2d::new(3, 2)), x)?;
        }
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [6, 6] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    for first in [0, 3] {
        x = net.add(format!("classifier.{first}"), Dropout::new(0.5), [x])?;
        x = net.add(format!("classifier.{}", first + 1), Linear::new(4096), [x])?;
        x = net.add(format!("classifier.{}", first + 2), LayerKind::Relu, [x])?;
    }
    x = net.add("classifier.6", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

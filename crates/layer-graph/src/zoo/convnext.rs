//! `ConvNeXt`-T (Liu et al., 2022), as in torchvision, with stochastic depth.

use crate::{
    AdaptiveAvgPool2d, Conv2d, Dropout, GraphError, LayerGraph, LayerId, LayerKind, LayerNorm, Linear,
    Permute, Scale, Shape,
};

/// Maximum probability of the stochastic depth, which grows linearly from the first block to the
/// last.
const STOCHASTIC_DEPTH: f64 = 0.1;
const NORM: LayerNorm = LayerNorm { epsilon: 1e-6 };
/// Number of channels and of blocks of each stage.
const STAGES: [(usize, usize); 4] = [(96, 3), (192, 3), (384, 9), (768, 3)];

/// Builds `ConvNeXt`-T under the given name, for images of 3x224x224 and 1000 classes. Its layers
/// fit their inputs, so that no error is returned.
pub(super) fn convnext_t(name: &str) -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new(name, Shape::image(3, 224, 224))?;
    let input = net.input();
    let mut x = net.add("features.0.0", Conv2d::new(STAGES[0].0, 4).stride(4), [input])?;
    x = norm(&mut net, "features.0.1", x)?;
    let last: usize = STAGES.iter().map(|(_, blocks)| blocks).sum::<usize>() - 1;
    let mut index = 0;
    for (stage, (channels, blocks)) in STAGES.into_iter().enumerate() {
        if stage > 0 {
            let label = format!("features.{}", 2 * stage);
            x = norm(&mut net, &format!("{label}.0"), x)?;
            x = net.add(format!("{label}.1"), Conv2d::new(channels, 2).stride(2), [x])?;
        }
        for block in 0..blocks {
            let label = format!("features.{}.{block}", 2 * stage + 1);
            let probability = STOCHASTIC_DEPTH * f64::from(index) / last as f64;
            x = residual(&mut net, &label, probability, x)?;
            index += 1;
        }
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = norm(&mut net, "classifier.0", x)?;
    x = net.add("classifier.1", LayerKind::Flatten, [x])?;
    x = net.add("classifier.2", Linear::new(1000), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

/// Adds a residual block, which keeps the number of channels. With probability 0 it has no
/// stochastic depth.
fn residual(
    net: &mut LayerGraph,
    label: &str,
    probability: f64,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let channels = net.layer(input).output_shape().dims()[0];
    let mut add =
        |part: &str, kind: LayerKind, inputs: &[LayerId]| net.add(format!("{label}.{part}"), kind, inputs);
    let depthwise = Conv2d::new(channels, 7).padding(3).groups(channels);
    let mut x = add("block.0", depthwise.into(), &[input])?;
    x = add("block.1", channels_last().into(), &[x])?;
    x = add("block.2", NORM.into(), &[x])?;
    x = add("block.3", Linear::new(4 * channels).into(), &[x])?;
    x = add("block.4", LayerKind::Gelu, &[x])?;
    x = add("block.5", Linear::new(channels).into(), &[x])?;
    x = add("block.6", channels_first().into(), &[x])?;
    x = add("layer_scale", Scale::Channels.into(), &[x])?;
    if probability > 0.0 {
        x = add("stochastic_depth", Dropout { probability, of_samples: true }.into(), &[x])?;
    }
    add("add", LayerKind::Add, &[x, input])
}

/// Adds a layer normalisation over the channels of an image.
fn norm(net: &mut LayerGraph, label: &str, input: LayerId) -> Result<LayerId, GraphError> {
    let mut x = net.add(format!("{label}.permute"), channels_last(), [input])?;
    x = net.add(label, NORM, [x])?;
    net.add(format!("{label}.permute.2"), channels_first(), [x])
}

fn channels_last() -> Permute {
    Permute { order: vec![1, 2, 0] }
}

fn channels_first() -> Permute {
    Permute { order: vec![2, 0, 1] }
}

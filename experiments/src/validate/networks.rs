//! Networks that a few cores train in tens of milliseconds an iteration.
//!
//! They differ in the layers that limit the speed-up of data parallelism.

use std::sync::Arc;

use deeppool::Error;
use deeppool::data::Dataset;
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, GraphError, LayerGraph, LayerId, LayerKind, Linear, Pool2d, Shape,
    zoo,
};

/// A network and its global batch.
#[derive(Debug, Clone)]
pub(super) struct TrainingJob {
    /// The network.
    pub(super) network: Arc<LayerGraph>,
    /// Samples of the global batch.
    pub(super) batch: usize,
}

impl TrainingJob {
    /// Creates synthetic data whose training samples make `iterations` iterations an epoch.
    ///
    /// # Errors
    /// If there is no synthetic data for the network's input or loss.
    pub(super) fn dataset(&self, iterations: usize) -> Result<Dataset, Error> {
        // A fifth of the samples, rounded up, is held out.
        let samples = (self.batch * iterations * 5).div_ceil(4);
        Ok(Dataset::synthetic_for(&self.network, samples, 0)?)
    }
}

/// A job with a network of this module or of the zoo.
#[derive(Debug, Clone, Copy)]
pub(super) struct BuiltInJob {
    build: fn() -> Result<LayerGraph, GraphError>,
    batch: usize,
}

impl BuiltInJob {
    /// Builds the network.
    ///
    /// # Errors
    /// If the layers of the network do not fit together.
    pub(super) fn load(&self) -> Result<TrainingJob, Error> {
        Ok(TrainingJob { network: Arc::new((self.build)()?), batch: self.batch })
    }
}

/// Number of classes of the labels.
const CLASSES: usize = 10;

/// Default foreground jobs. `--quick` uses the first one.
pub(super) const WORKLOADS: [BuiltInJob; 3] = [
    BuiltInJob { build: two_towers, batch: 32 },
    BuiltInJob { build: vgg11_32, batch: 16 },
    BuiltInJob { build: resnet20, batch: 4 },
];

/// Background job beside all of them. None of its steps is longer than a piece of background work
/// under the default policy, so that its batch is not split, and the runtime and the simulator run
/// the same steps.
pub(super) const BACKGROUND: BuiltInJob = BuiltInJob { build: || zoo::model("digits-cnn"), batch: 8 };

/// Builds two branches of wide linear layers, with many parameters and few operations. They are
/// hardly faster with half of the samples, and data parallelism has to reduce all gradients; a rank
/// for each branch avoids both.
fn two_towers() -> Result<LayerGraph, GraphError> {
    const WIDTH: usize = 2048;
    let mut net = LayerGraph::new("two-towers", Shape::features(WIDTH / 2))?;
    let mut towers = Vec::new();
    for tower in ["left", "right"] {
        let mut x = net.input();
        for index in 1..=2 {
            x = net.add(format!("{tower}.fc{index}"), Linear::new(WIDTH), [x])?;
            x = net.add(format!("{tower}.gelu{index}"), LayerKind::GeluTanh, [x])?;
        }
        towers.push(x);
    }
    let x = net.add("add", LayerKind::Add, towers)?;
    classified(net, x)
}

/// Builds VGG-11 with half of its channels for images of 32 x 32 pixels. More ranks make its
/// convolutions faster, but not the layers with small images and most parameters.
fn vgg11_32() -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("vgg11-32", Shape::image(3, 32, 32))?;
    let mut x = net.input();
    let blocks = [&[32][..], &[64], &[128, 128], &[256, 256], &[256, 256]];
    for (block, widths) in blocks.into_iter().enumerate() {
        for (index, &width) in widths.iter().enumerate() {
            let label = format!("{}_{}", block + 1, index + 1);
            x = net.add(format!("conv{label}"), Conv2d::new(width, 3).padding(1), [x])?;
            x = net.add(format!("relu{label}"), LayerKind::Relu, [x])?;
        }
        x = net.add(format!("pool{}", block + 1), LayerKind::MaxPool2d(Pool2d::new(2, 2)), [x])?;
    }
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    for label in ["6", "7"] {
        x = net.add(format!("fc{label}"), Linear::new(2048), [x])?;
        x = net.add(format!("relu{label}"), LayerKind::Relu, [x])?;
    }
    classified(net, x)
}

/// Builds the residual network of 20 layers for images of 32 x 32 pixels (He et al., 2016, section
/// 4.2), four times as wide, with projections where shapes change. More ranks make all of it
/// faster, the last stage the least.
fn resnet20() -> Result<LayerGraph, GraphError> {
    const WIDTHS: [usize; 3] = [64, 128, 256];
    let mut net = LayerGraph::new("resnet-20x4", Shape::image(3, 32, 32))?;
    let input = net.input();
    let mut x = normalised(&mut net, "conv1", Conv2d::new(WIDTHS[0], 3).padding(1), input)?;
    x = net.add("relu1", LayerKind::Relu, [x])?;
    for (stage, width) in WIDTHS.into_iter().enumerate() {
        for block in 0..3 {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            x = residual(&mut net, &format!("layer{}.{block}", stage + 1), width, stride, x)?;
        }
    }
    x = net.add("avgpool", AdaptiveAvgPool2d { output: [1, 1] }, [x])?;
    x = net.add("flatten", LayerKind::Flatten, [x])?;
    classified(net, x)
}

fn residual(
    net: &mut LayerGraph,
    label: &str,
    width: usize,
    stride: usize,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let first = Conv2d::new(width, 3).stride(stride).padding(1);
    let mut x = normalised(net, &format!("{label}.conv1"), first, input)?;
    x = net.add(format!("{label}.relu1"), LayerKind::Relu, [x])?;
    x = normalised(net, &format!("{label}.conv2"), Conv2d::new(width, 3).padding(1), x)?;
    let shortcut = match stride {
        1 => input,
        _ => normalised(net, &format!("{label}.shortcut"), Conv2d::new(width, 1).stride(stride), input)?,
    };
    let sum = net.add(format!("{label}.add"), LayerKind::Add, [x, shortcut])?;
    net.add(format!("{label}.relu2"), LayerKind::Relu, [sum])
}

fn normalised(
    net: &mut LayerGraph,
    label: &str,
    conv: Conv2d,
    input: LayerId,
) -> Result<LayerId, GraphError> {
    let x = net.add(label, conv.without_bias(), [input])?;
    net.add(format!("{label}.bn"), BatchNorm::default(), [x])
}

/// Adds a linear layer to the classes and the loss.
fn classified(mut net: LayerGraph, x: LayerId) -> Result<LayerGraph, GraphError> {
    let x = net.add("classes", Linear::new(CLASSES), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

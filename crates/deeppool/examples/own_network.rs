//! Builds a network layer by layer, as in PyTorch, and trains it on two ranks.
//!
//!     cargo run --release -p deeppool --example own_network

use deeppool::data::Dataset;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{Progress, TrainConfig, train};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, GraphError, LayerGraph, LayerId, LayerKind, Linear, Shape,
};

/// Adds a convolution, batch normalisation and ReLU: a function where PyTorch has a
/// `torch.nn.Module`.
fn block(
    net: &mut LayerGraph,
    name: &str,
    channels: usize,
    stride: usize,
    x: LayerId,
) -> Result<LayerId, GraphError> {
    let conv = Conv2d::new(channels, 3).stride(stride).padding(1).without_bias();
    let x = net.add(format!("{name}.conv"), conv, [x])?;
    let x = net.add(format!("{name}.norm"), BatchNorm::default(), [x])?;
    net.add(format!("{name}.relu"), LayerKind::Relu, [x])
}

/// A small residual network for 8x8 images.
fn network() -> Result<LayerGraph, GraphError> {
    let mut net = LayerGraph::new("small-resnet", Shape::image(1, 8, 8))?;
    let input = net.input();
    let stem = block(&mut net, "stem", 16, 1, input)?;
    let x = block(&mut net, "residual", 16, 1, stem)?;
    let x = net.add("add", LayerKind::Add, [x, stem])?;
    let x = block(&mut net, "down", 32, 2, x)?;
    let x = net.add("pool", AdaptiveAvgPool2d { output: [2, 2] }, [x])?;
    let x = net.add("flatten", LayerKind::Flatten, [x])?;
    let x = net.add("fc", Linear::new(10), [x])?;
    net.add("loss", LayerKind::CROSS_ENTROPY, [x])?;
    Ok(net)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let network = network()?;
    let dataset = Dataset::digits()?;
    // The convolutions run on two ranks, the layers after them on one.
    let gpus: Vec<usize> = network
        .computing_layers()
        .map(|(_, layer)| if layer.output_shape().as_image().is_some() { 2 } else { 1 })
        .collect();
    let placement = Placement::first_ranks(&network, 2, &gpus)?;
    // Normalise over the global batch, so that the result does not depend on the placement.
    let lowering = LowerOptions::default().with_sync_batch_norm(true);
    let training = LoweredTraining::new(&network, placement, 32, lowering);
    let config = TrainConfig::new(&dataset, &training);
    println!("{} parameters", network.parameter_count());
    let report = train(&config, &|progress| {
        if let Progress::Epoch(epoch) = progress {
            let (loss, accuracy) = (epoch.train_loss, epoch.test.score() * 100.0);
            println!("epoch {}  loss {loss:.4}  test accuracy {accuracy:.2}%", epoch.epoch);
        }
    })?;
    println!("{:.0} samples/s", report.foreground_samples_per_s);
    Ok(())
}

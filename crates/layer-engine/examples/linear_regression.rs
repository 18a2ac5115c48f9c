//! Fits a linear layer to points on a plane by gradient descent: forward pass, gradient of a loss
//! that the caller computes, backward pass, optimiser step.
//!
//!     cargo run -p layer-engine --example linear_regression

use layer_engine::{
    CpuEngine, Engine, KernelSpec, LaunchContext, Pass, Precision, Sgd, Shard, initial_parameters,
};
use layer_graph::{LayerGraph, Linear, Shape};

/// Points on the plane `2 a - 3 b + 1`.
const POINTS: [([f64; 2], f64); 5] =
    [([0.0, 0.0], 1.0), ([1.0, 0.0], 3.0), ([0.0, 1.0], -2.0), ([1.0, 1.0], 0.0), ([2.0, -1.0], 8.0)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut network = LayerGraph::new("regression", Shape::features(2))?;
    let id = network.add("fc", Linear::new(1), [network.input()])?;
    let (layer, shard) = (network.layer(id), Shard::whole(POINTS.len()));

    // Kernels allocate their workspace here and nothing at launch.
    let engine = CpuEngine::<f64>::new();
    let rule = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: None };
    let prepare = |spec: KernelSpec<'_>| engine.prepare(&spec, Precision::F64);
    let mut forward = prepare(KernelSpec::Layer { layer, pass: Pass::Forward, shard })?;
    let mut backward = prepare(KernelSpec::Layer { layer, pass: Pass::Backward, shard })?;
    let mut step = prepare(KernelSpec::Sgd { elements: vec![layer.parameter_count()], rule })?;

    let x: Vec<f64> = POINTS.iter().flat_map(|(point, _)| *point).collect();
    let mut parameters: Vec<f64> = initial_parameters(layer, 0);
    let (mut velocity, mut gradient) = (vec![0.0; parameters.len()], vec![0.0; parameters.len()]);
    let (mut y, mut dx) = (vec![0.0; POINTS.len()], vec![0.0; x.len()]);
    for iteration in 0..200 {
        let context = LaunchContext { seed: 0, iteration, learning_rate: 0.05 };
        engine.enqueue(&mut forward, &[&x, &parameters], &mut [&mut y], &context, &mut ())?;

        // Mean squared error and its gradient with respect to the output.
        let errors: Vec<f64> = y.iter().zip(POINTS).map(|(y, (_, value))| y - value).collect();
        let loss = errors.iter().map(|error| error * error).sum::<f64>() / POINTS.len() as f64;
        let dy: Vec<f64> = errors.iter().map(|error| 2.0 * error / POINTS.len() as f64).collect();

        let written = &mut [&mut dx, &mut gradient];
        engine.enqueue(&mut backward, &[&x, &parameters, &dy], written, &context, &mut ())?;
        let state = &mut [&mut parameters, &mut velocity];
        engine.enqueue(&mut step, &[&gradient], state, &context, &mut ())?;
        if iteration % 40 == 0 {
            println!("iteration {iteration:3}  loss {loss:.6}");
        }
    }
    println!("{:.3} a + {:.3} b + {:.3}", parameters[0], parameters[1], parameters[2]);
    Ok(())
}

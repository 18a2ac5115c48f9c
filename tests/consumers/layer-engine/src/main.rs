//! Fits a line by gradient descent on one linear layer.

use std::error::Error;

use layer_engine::{CpuEngine, Engine, KernelSpec, LaunchContext, Pass, Precision, Shard};
use layer_graph::{LayerGraph, Linear, Shape};

fn main() -> Result<(), Box<dyn Error>> {
    let mut net = LayerGraph::new("line", Shape::features(1))?;
    let fc = net.add("fc", Linear::new(1), [net.input()])?;
    let (layer, shard) = (net.layer(fc), Shard::whole(5));

    let engine = CpuEngine::<f64>::new();
    let context = LaunchContext { seed: 0, iteration: 0, learning_rate: 0.1 };
    let prepare = |pass| engine.prepare(&KernelSpec::Layer { layer, pass, shard }, Precision::F64);
    let (mut forward, mut backward) = (prepare(Pass::Forward)?, prepare(Pass::Backward)?);

    let x = vec![-1.0, -0.5, 0.0, 0.5, 1.0];
    let target: Vec<f64> = x.iter().map(|x| 3.0 * x - 1.0).collect();
    let mut parameters = vec![0.0; 2]; // slope and intercept
    for _ in 0..200 {
        let (mut y, mut dx, mut gradient) = (vec![0.0; 5], vec![0.0; 5], vec![0.0; 2]);
        engine.enqueue(&mut forward, &[&x, &parameters], &mut [&mut y], &context, &mut ())?;
        let dy: Vec<f64> = y.iter().zip(&target).map(|(y, target)| (y - target) * 2.0 / 5.0).collect();
        engine.enqueue(
            &mut backward,
            &[&x, &parameters, &dy],
            &mut [&mut dx, &mut gradient],
            &context,
            &mut (),
        )?;
        for (parameter, gradient) in parameters.iter_mut().zip(gradient) {
            *parameter -= context.learning_rate * gradient;
        }
    }
    println!("y = {:.6} x + {:.6}", parameters[0], parameters[1]);
    assert!((parameters[0] - 3.0).abs() < 1e-6 && (parameters[1] + 1.0).abs() < 1e-6);
    Ok(())
}

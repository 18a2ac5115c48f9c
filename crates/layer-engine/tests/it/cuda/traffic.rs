//! Memory traffic of matrix products: bytes that the GPU functions read and write.

use cuda_emulator::{KernelRun, Setting};
use layer_engine::{CudaEngine, KernelChoice, Pass, Precision, Role, Shard};
use layer_graph::{Conv2d, Layer, Linear, Shape};

use super::{emulated_gpu, emulator};
use crate::any_engine::LayerRun;
use crate::single_layer::layer;

/// Layers without biases whose products have large and small tiles, one and several slices.
fn layers() -> Vec<(Layer, usize)> {
    let conv = |filters, kernel| Conv2d::new(filters, kernel).without_bias();
    vec![
        (layer(conv(64, 3).padding(1), &[Shape::image(128, 2, 2)]), 8),
        (layer(conv(24, 3).padding(1).stride(2), &[Shape::image(32, 9, 9)]), 3),
        (layer(conv(40, 1), &[Shape::image(24, 8, 8)]), 5),
        (layer(conv(16, 3).padding(1).groups(4), &[Shape::image(16, 12, 12)]), 3),
        (layer(Linear { out_features: 48, bias: false }, &[Shape::features(800)]), 20),
    ]
}

/// The products and the sums of their slices read and write at most 1.5 times the operands:
/// factors and product. Each launch counts a byte once, so that repeated reads, which the cache of
/// the device serves, do not count, but workspace counts when it is written and when it is read.
#[test]
fn products_move_at_most_one_and_a_half_times_their_operands() {
    for (layer, samples) in layers() {
        let Some(emulator) = emulator(0) else { return };
        emulator.set(Setting::RaceCheck, 0);
        emulator.set(Setting::OrderCheck, 1);
        let engine = CudaEngine::on(&emulated_gpu().unwrap()).with_choice(KernelChoice::Own);
        let mut run = LayerRun::new(&engine, Precision::F32, &layer, Shard::whole(samples));
        let input = samples * layer.input_shapes()[0].elements();
        let operands = 4 * (input + samples * layer.output_shape().elements() + layer.parameter_count());
        let mut before = emulator.kernels().len();
        // Both products of a backward pass have the elements of the forward pass.
        for (pass, products) in [(Pass::Forward, 1), (Pass::Backward, 2)] {
            run.run(pass).unwrap();
            let _ = run.values(Role::Output);
            let kernels = emulator.kernels().split_off(before);
            let moved: u64 = kernels.iter().map(|run| run.bytes_read + run.bytes_written).sum();
            let (moved, operands) = (moved as f64, (products * operands) as f64);
            let names: Vec<_> = kernels.iter().map(|KernelRun { name, .. }| name).collect();
            println!("{:?} {pass:?}: {:.3} times the operands by {names:?}", layer.kind(), moved / operands);
            // Strided convolutions do not read all of their input.
            assert!(moved >= 0.5 * operands && moved <= 1.5 * operands, "{layer:?} {pass:?}: {moved} bytes");
            before += kernels.len();
        }
    }
}

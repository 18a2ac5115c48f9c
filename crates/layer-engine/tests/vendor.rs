//! Plans of cuDNN itself for the networks of the zoo, which need no GPU: the library that the
//! variable `CUDNN_LIBRARY` names, and the emulated one.
#![cfg(feature = "cuda")]

use std::collections::BTreeSet;

use cuda::{
    Convolution, ConvolutionShape, Cudnn, Determinism, DeviceProperties, Direction, Layout, Numerics, Target,
};
use cuda_emulator::Emulator;
use layer_graph::{LayerKind, zoo};

/// Number of samples of each shape.
const SAMPLES: usize = 16;

/// Returns the different convolutions of the zoo: channels, output channels, groups, sides of input
/// and kernel, stride and padding.
fn convolutions() -> BTreeSet<[usize; 11]> {
    let mut found = BTreeSet::new();
    for name in zoo::names() {
        for (_, layer) in zoo::model(name).unwrap().layers() {
            if let LayerKind::Conv2d(conv) = layer.kind() {
                let (channels, height, width) = layer.input_shapes()[0].as_image().unwrap();
                let [[kh, kw], [sh, sw], [ph, pw]] = [conv.kernel, conv.stride, conv.padding];
                let groups = conv.groups;
                found.insert([channels, conv.out_channels, groups, height, width, kh, kw, sh, sw, ph, pw]);
            }
        }
    }
    found
}

/// Returns the engines of deterministic plans for an H100, for each convolution, direction,
/// precision and layout that the engine uses or may use.
fn engines(cudnn: &Cudnn, convolutions: &BTreeSet<[usize; 11]>) -> Vec<(String, BTreeSet<i64>)> {
    let h100 = DeviceProperties::h100();
    let mut found = Vec::new();
    for &[in_channels, out_channels, groups, height, width, kh, kw, sh, sw, ph, pw] in convolutions {
        for direction in [Direction::Forward, Direction::InputGradient, Direction::WeightGradient] {
            for (numerics, layout) in [
                (Numerics::F32, Layout::Nchw),
                (Numerics::F32, Layout::Nhwc),
                (Numerics::Tf32, Layout::Nchw),
                (Numerics::Tf32, Layout::Nhwc),
                (Numerics::Bf16, Layout::Nchw),
                (Numerics::Bf16, Layout::Nhwc),
            ] {
                let shape = ConvolutionShape {
                    samples: SAMPLES,
                    in_channels,
                    out_channels,
                    groups,
                    input: [height, width],
                    kernel: [kh, kw],
                    stride: [sh, sw],
                    padding: [ph, pw],
                    dilation: [1, 1],
                    layout,
                    direction,
                };
                let (target, determinism) = (Target::Properties(&h100), Determinism::Deterministic);
                let plans = cudnn.convolutions(target, &shape, numerics, determinism, usize::MAX).unwrap();
                let engines = plans.iter().map(Convolution::engine).collect();
                found.push((format!("{shape:?} {numerics:?}"), engines));
            }
        }
    }
    found
}

/// The emulated library has one of cuDNN's engines for each convolution.
#[test]
fn all_convolutions_of_the_zoo_have_deterministic_plans_in_each_precision() {
    let convolutions = convolutions();
    assert!(convolutions.len() > 100, "{}", convolutions.len());
    let real = std::env::var_os("CUDNN_LIBRARY").map(|path| {
        let cudnn = Cudnn::open_first_of(&[path.into()]).unwrap();
        engines(&cudnn, &convolutions)
    });
    // Opened afterwards: cuDNN would find the emulated driver.
    let emulated = Cudnn::open_first_of(&[Emulator::library().unwrap()]).unwrap();
    let emulated = engines(&emulated, &convolutions);
    if real.is_none() {
        println!("SKIPPED: cuDNN itself: CUDNN_LIBRARY is not set");
    }
    for (real, (case, emulated)) in real.iter().flatten().zip(&emulated) {
        let both = real.1.intersection(emulated).count();
        assert!(both > 0, "{case}: {:?} by cuDNN, {emulated:?} emulated", real.1);
    }
    assert!(emulated.iter().all(|(_, engines)| !engines.is_empty()));
    println!("{} convolutions, {} searches", convolutions.len(), emulated.len());
}

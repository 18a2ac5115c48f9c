//! Plans of cuDNN itself for the networks of the zoo, which need no GPU: the library that the
//! variable `CUDNN_LIBRARY` names. Nothing is emulated here: cuDNN would find an emulated driver.
#![cfg(feature = "cuda")]

use std::collections::BTreeSet;

use cuda::{ConvolutionShape, Cudnn, Determinism, DeviceProperties, Direction, Layout, Numerics, Target};
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

#[test]
fn all_convolutions_of_the_zoo_have_deterministic_plans_in_each_precision() {
    let convolutions = convolutions();
    assert!(convolutions.len() > 100, "{}", convolutions.len());
    let Some(path) = std::env::var_os("CUDNN_LIBRARY") else {
        println!("SKIPPED: cuDNN itself: CUDNN_LIBRARY is not set");
        return;
    };
    let cudnn = Cudnn::open_first_of(&[path.into()]).unwrap();
    let h100 = DeviceProperties::h100();
    let mut searches = 0;
    for &[in_channels, out_channels, groups, height, width, kh, kw, sh, sw, ph, pw] in &convolutions {
        for direction in [Direction::Forward, Direction::InputGradient, Direction::WeightGradient] {
            for (numerics, layout) in [
                (Numerics::F32, Layout::Nchw),
                (Numerics::Tf32, Layout::Nhwc),
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
                let target = Target::Properties(&h100);
                let plans =
                    cudnn.convolutions(target, &shape, numerics, Determinism::Deterministic, usize::MAX);
                assert!(!plans.unwrap().is_empty(), "{shape:?} {numerics:?}");
                searches += 1;
            }
        }
    }
    println!("{} convolutions, {searches} searches", convolutions.len());
}

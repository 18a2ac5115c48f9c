//! Numbers of blocks of whole networks' launches, with the batches that `tests/pytorch` compares
//! with PyTorch.

use cuda::Driver;
use cuda_emulator::Emulator;
use layer_graph::{BatchNorm, Conv2d, Layer, LayerGraph, LayerKind, Linear, Pool2d, Shape, zoo};

use super::CudaEngine;
use super::kernel::{CudaKernel, Launch};
use super::prepare;
use super::slices::MULTIPROCESSORS;
use crate::{ImageLayout, KernelChoice, KernelSpec, Pass, Precision, Shard};

/// VGG-11 with batch normalisation for images of 3 x 32 x 32.
fn vgg() -> LayerGraph {
    let mut graph = LayerGraph::new("vgg11-cifar", Shape::image(3, 32, 32)).unwrap();
    let mut last = graph.input();
    for (at, channels) in [64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0].into_iter().enumerate() {
        let mut add = |kind: LayerKind, name| last = graph.add(format!("{name}{at}"), kind, [last]).unwrap();
        if channels == 0 {
            add(LayerKind::MaxPool2d(Pool2d::new(2, 2)), "pool");
        } else {
            add(Conv2d::new(channels, 3).padding(1).into(), "conv");
            add(BatchNorm::default().into(), "norm");
        }
    }
    let flat = graph.add("flat", LayerKind::Flatten, [last]).unwrap();
    graph.add("linear", Linear::new(10), [flat]).unwrap();
    graph
}

/// Returns name and number of blocks of the launches that compute products and moments.
fn main_launches(kernel: &CudaKernel) -> impl Iterator<Item = (&'static str, usize)> {
    let names =
        ["_forward", "_weight_gradient", "_moments", "convolution_input_gradient", "linear_input_gradient"];
    let functions = kernel.launches.iter().filter_map(|launch| match launch {
        Launch::Function(function) => Some(function),
        Launch::Library(_) => None,
    });
    let launches = functions.filter(move |launch| {
        let plain = launch.name.trim_end_matches("_small").trim_end_matches("_last");
        names.iter().any(|name| plain.ends_with(name))
    });
    launches.map(|launch| (launch.name, launch.grid.iter().map(|&side| side as usize).product()))
}

/// Returns whether the work of a layer is too little to be divided among all multiprocessors:
/// fewer than two slices of 256 terms of a small tile, or of 1024 terms of a moment, for each.
fn is_little_work(layer: &Layer, samples: usize) -> bool {
    let [input, output] = [&layer.input_shapes()[0], layer.output_shape()];
    match layer.kind() {
        LayerKind::Conv2d(conv) => {
            let weights = layer.parameter_count() - if conv.bias { conv.out_channels } else { 0 };
            let products = output.elements() / conv.out_channels * samples * weights;
            products < MULTIPROCESSORS * 2 * 256 * 32 * 32
        }
        LayerKind::Linear(_) => {
            samples * output.elements() * input.elements() < MULTIPROCESSORS * 2 * 256 * 32 * 32
        }
        _ => samples * input.elements() < MULTIPROCESSORS * 2 * 1024,
    }
}

/// Every multiprocessor of an H200 gets a block, unless there are too few terms. With channels last
/// that concerns normalisations only.
#[test]
fn products_and_moments_occupy_all_multiprocessors() {
    let _emulator = Emulator::new().unwrap();
    let driver = Driver::open_first_of(&[Emulator::library().unwrap()]).unwrap();
    let engine = CudaEngine::on(&driver.context(0).unwrap()).with_choice(KernelChoice::Own);
    let (mut count, mut exempt) = (0, 0);
    for (graph, samples) in [(vgg(), 32), (vgg(), 128), (zoo::model("resnet-18").unwrap(), 8)] {
        for (_, layer) in graph.computing_layers() {
            let kind = layer.kind();
            if !matches!(kind, LayerKind::Conv2d(_) | LayerKind::Linear(_) | LayerKind::BatchNorm(_)) {
                continue;
            }
            let layouts = match kind {
                LayerKind::BatchNorm(_) => vec![ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast],
                _ => vec![ImageLayout::ChannelsFirst],
            };
            let passes = [Pass::forward(layer), Pass::backward(layer, true)].concat();
            for (layout, pass) in
                layouts.iter().flat_map(|layout| passes.iter().map(move |&pass| (*layout, pass)))
            {
                let engine = engine.clone().with_image_layout(layout);
                let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(samples) };
                let kernel = prepare::kernel(&engine.device, &spec, Precision::F32).unwrap();
                for (launch, blocks) in main_launches(&kernel) {
                    let text = format!("{}, {}: {blocks} blocks of {launch}", graph.name(), layer.name());
                    println!("{text}");
                    count += 1;
                    if blocks < MULTIPROCESSORS {
                        assert!(is_little_work(layer, samples), "{text}");
                        exempt += 1;
                    }
                }
            }
        }
    }
    println!("{count} launches, of which {exempt} have too little work");
    assert!(count >= 330 && exempt <= 15, "{count} launches, {exempt} with too few blocks");
}

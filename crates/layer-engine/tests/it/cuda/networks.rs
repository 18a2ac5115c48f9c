//! Gradients of all parameters of whole networks, compared with the CPU engine.

use layer_engine::{
    CpuEngine, Engine, EngineError, ImageLayout, KernelChoice, KernelSpec, Pass, Precision, Shard,
};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, Embedding, LayerGraph, LayerId, LayerKind, LayerNorm,
    Linear, MultiHeadAttention, Permute, Pool2d, PositionEmbedding, Reshape, Select, Shape, zoo,
};

use super::{ORDERS, on_device};
use crate::any_engine::network::gradients;

/// Adds a layer with one input.
fn then(net: &mut LayerGraph, kind: impl Into<LayerKind>, from: LayerId) -> LayerId {
    let name = format!("layer{}", net.layers().count());
    net.add(name, kind, [from]).unwrap()
}

fn end(net: &mut LayerGraph, from: LayerId) {
    let scores = then(net, Linear::new(5), from);
    then(net, LayerKind::CROSS_ENTROPY, scores);
}

fn convolution(net: &mut LayerGraph, conv: Conv2d, from: LayerId) -> LayerId {
    let y = then(net, conv.without_bias(), from);
    then(net, BatchNorm::default(), y)
}

pub(crate) fn residual() -> LayerGraph {
    let mut net = LayerGraph::new("residual", Shape::image(3, 8, 8)).unwrap();
    let input = net.input();
    let x = convolution(&mut net, Conv2d::new(6, 3).padding(1), input);
    let x = then(&mut net, LayerKind::Relu, x);
    let y = convolution(&mut net, Conv2d::new(8, 3).padding(1).stride(2), x);
    let y = then(&mut net, LayerKind::Relu, y);
    let y = convolution(&mut net, Conv2d::new(8, 3).padding(1), y);
    let shortcut = convolution(&mut net, Conv2d::new(8, 1).stride(2), x);
    let sum = net.add("sum", LayerKind::Add, [y, shortcut]).unwrap();
    let y = then(&mut net, LayerKind::Relu, sum);
    let y = then(&mut net, AdaptiveAvgPool2d { output: [1, 1] }, y);
    let y = then(&mut net, LayerKind::Flatten, y);
    end(&mut net, y);
    net
}

/// Has a batch normalisation whose sums over a channel are computed in several slices.
pub(crate) fn large_norm() -> LayerGraph {
    let mut net = LayerGraph::new("large norm", Shape::image(2, 23, 24)).unwrap();
    let input = net.input();
    let y = convolution(&mut net, Conv2d::new(3, 1), input);
    let y = then(&mut net, LayerKind::Relu, y);
    let y = then(&mut net, AdaptiveAvgPool2d { output: [2, 2] }, y);
    let y = then(&mut net, LayerKind::Flatten, y);
    end(&mut net, y);
    net
}

pub(crate) fn inception() -> LayerGraph {
    let mut net = LayerGraph::new("inception", Shape::image(4, 7, 7)).unwrap();
    let x = net.input();
    let a = convolution(&mut net, Conv2d::new(3, 1), x);
    let b = convolution(&mut net, Conv2d::rectangular(5, [1, 7]).padding_hw([0, 3]), x);
    let c = then(&mut net, LayerKind::AvgPool2d(Pool2d::new(3, 1).padding(1)), x);
    let d = then(&mut net, LayerKind::MaxPool2d(Pool2d::new(3, 1).padding(1)), x);
    let joined = net.add("joined", LayerKind::Concat, [a, b, c, d]).unwrap();
    let y = then(&mut net, LayerKind::GeluTanh, joined);
    let y = then(&mut net, LayerKind::AvgPool2d(Pool2d::new(7, 1)), y);
    let y = then(&mut net, LayerKind::Flatten, y);
    let y = then(&mut net, Dropout::new(0.5), y);
    end(&mut net, y);
    net
}

/// Adds a transformer block.
fn block(net: &mut LayerGraph, x: LayerId, causal: bool, index: usize) -> LayerId {
    let y = then(net, LayerNorm::default(), x);
    let y = then(net, Linear::new(24), y);
    let y = then(net, MultiHeadAttention::new(2, causal), y);
    let y = then(net, Linear::new(8), y);
    let x = net.add(format!("attended{index}"), LayerKind::Add, [x, y]).unwrap();
    let y = then(net, LayerNorm::default(), x);
    let y = then(net, Linear::new(16), y);
    let y = then(net, if causal { LayerKind::GeluTanh } else { LayerKind::Gelu }, y);
    let y = then(net, Linear::new(8), y);
    net.add(format!("block{index}"), LayerKind::Add, [x, y]).unwrap()
}

pub(crate) fn vision_transformer() -> LayerGraph {
    let mut net = LayerGraph::new("vision", Shape::image(3, 8, 8)).unwrap();
    let patches = Conv2d { stride: [4, 4], ..Conv2d::new(8, 4) };
    let input = net.input();
    let y = then(&mut net, patches, input);
    let y = then(&mut net, Reshape { output: Shape::new([8, 4]) }, y);
    let y = then(&mut net, Permute { order: vec![1, 0] }, y);
    let y = then(&mut net, LayerKind::ClassToken, y);
    let y = then(&mut net, PositionEmbedding::new(5), y);
    let y = block(&mut net, y, false, 0);
    let y = block(&mut net, y, false, 1);
    let y = then(&mut net, Select { index: 0 }, y);
    end(&mut net, y);
    net
}

fn language_model() -> LayerGraph {
    let mut net = LayerGraph::new("language", Shape::features(9)).unwrap();
    let input = net.input();
    let y = then(&mut net, Embedding::new(11, 8), input);
    let y = then(&mut net, PositionEmbedding::new(12), y);
    let y = block(&mut net, y, true, 0);
    let y = then(&mut net, LayerNorm::default(), y);
    end(&mut net, y);
    net
}

/// Ways to compute products, with the maximum relative difference of gradients from the CPU
/// engine's, which stores 16 bits where they do.
pub(crate) const WAYS: [(KernelChoice, Precision, f64); 5] = [
    (KernelChoice::Own, Precision::F32, 2e-5),
    (KernelChoice::Vendor, Precision::F32, 2e-5),
    (KernelChoice::Vendor, Precision::Tf32, 1e-2),
    (KernelChoice::Own, Precision::Bf16, 5e-3),
    (KernelChoice::Vendor, Precision::Bf16, 5e-3),
];

#[test]
fn network_gradients_match_cpu_engine() {
    let digits = zoo::model("digits-cnn").unwrap();
    let networks = [digits, residual(), large_norm(), inception(), vision_transformer(), language_model()];
    for (graph, order) in networks.iter().zip(ORDERS.into_iter().cycle()) {
        let [single, half] = [Precision::F32, Precision::Bf16]
            .map(|precision| gradients(&CpuEngine::<f32>::new(), precision, graph, 100));
        on_device(order, |engine| {
            // With channels last, convolutions are computed by the library only.
            let last = WAYS.into_iter().filter(|(choice, ..)| *choice == KernelChoice::Vendor);
            let first = WAYS.into_iter().map(|way| (way, ImageLayout::ChannelsFirst));
            let ways = first.chain(last.map(|way| (way, ImageLayout::ChannelsLast)));
            for ((choice, precision, bound), layout) in ways {
                let engine = &engine.clone().with_choice(choice).with_image_layout(layout);
                let got = gradients(engine, precision, graph, 100);
                let expected = if precision == Precision::Bf16 { &half } else { &single };
                let pairs = || {
                    got.iter().zip(expected).flat_map(|((_, got), (_, expected))| got.iter().zip(expected))
                };
                let difference: f64 = pairs().map(|(got, expected)| (got - expected).powi(2)).sum();
                let norm: f64 = pairs().map(|(_, expected)| expected.powi(2)).sum();
                let distance = (difference / norm).sqrt();
                let name = graph.name();
                assert!(
                    norm > 0.0 && distance <= bound,
                    "{name}, {choice:?}, {precision:?}, {layout:?}: {distance:.1e} from the CPU engine's"
                );
            }
        });
    }
}

/// The sizes of all layers are within the limits of a launch, in both orders of the elements of
/// images. Kernels are prepared one at a time to
/// limit the memory of their workspaces.
#[test]
fn zoo_layers_can_be_prepared() {
    let layouts = [ImageLayout::ChannelsFirst, ImageLayout::ChannelsLast];
    on_device(0, |engine| {
        for name in zoo::names() {
            for (_, layer) in zoo::model(name).unwrap().computing_layers() {
                if matches!(layer.kind(), LayerKind::Opaque(_)) {
                    continue;
                }
                let passes = [Pass::forward(layer), Pass::backward(layer, true), &[Pass::Infer]].concat();
                for (pass, layout) in passes.iter().flat_map(|&pass| layouts.map(|layout| (pass, layout))) {
                    let engine = engine.clone().with_image_layout(layout);
                    let spec = KernelSpec::Layer { layer, pass, shard: Shard::whole(2) };
                    let prepared = engine.prepare(&spec, Precision::F32);
                    match prepared.err() {
                        None => {}
                        // Layer normalisations of images, as in ConvNeXt, have one order.
                        Some(EngineError::ChannelsLast { .. }) if layout == ImageLayout::ChannelsLast => {}
                        Some(error) => panic!("{name}, {layout:?}: {error}"),
                    }
                }
            }
        }
    });
}

//! Every pass of every kind of layer, compared with the CPU engine.

use std::collections::BTreeMap;

use layer_engine::{CpuEngine, CudaEngine, Pass, Precision, Role, Shard, Signature};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, Embedding, Layer, LayerGraph, LayerKind, LayerNorm,
    Linear, LocalResponseNorm, MultiHeadAttention, Permute, Pool2d, PositionEmbedding, Reshape, Select,
    Shape,
};
use proptest::prelude::*;

use super::{ORDERS, more, on_device};
use crate::any_engine::{LayerRun, distance};

/// Sizes of shards: empty, one sample, and several.
const SAMPLES: [usize; 3] = [0, 1, 5];

/// Maximum relative difference from the CPU engine's results, by norm.
const BOUND: f64 = 1e-5;

/// Returns a layer of this kind over inputs of these shapes, all of which are computed from the
/// first.
fn layer(kind: impl Into<LayerKind>, inputs: &[Shape]) -> Layer {
    let mut graph = LayerGraph::new("test", inputs[0].clone()).unwrap();
    let input = graph.input();
    let mut ids = vec![input];
    for (index, shape) in inputs.iter().enumerate().skip(1) {
        ids.push(graph.add(format!("input{index}"), Conv2d::new(shape.dims()[0], 1), [input]).unwrap());
    }
    let id = graph.add("layer", kind, ids).unwrap();
    graph.layer(id).clone()
}

/// Returns all results of a layer's passes after comparing them with the CPU engine's: a training
/// step and its recomputation, with and without the input gradient, and evaluation.
fn results(engine: &CudaEngine, layer: &Layer, samples: usize) -> BTreeMap<(bool, Role), Vec<f64>> {
    let shard = Shard { first: 5, samples };
    let cpu = CpuEngine::<f32>::new();
    let mut all = BTreeMap::new();
    for input_gradient in [true, false] {
        let mut expected = LayerRun::new(&cpu, Precision::F32, layer, shard);
        let mut got = LayerRun::new(engine, Precision::F32, layer, shard);
        expected.step(input_gradient);
        got.step(input_gradient);
        for is_again in [false, true] {
            if is_again && Signature::of(layer, Pass::Recompute).is_some() {
                got.step_again(input_gradient);
            }
            for role in expected.results() {
                check(layer, shard, role, &got.values(role), &expected.values(role));
            }
        }
        all.extend(got.results().into_iter().map(|role| ((input_gradient, role), got.values(role))));
        if Signature::of(layer, Pass::Infer).is_some() {
            expected.run(Pass::Infer).unwrap();
            got.run(Pass::Infer).unwrap();
            check(layer, shard, Role::Output, &got.values(Role::Output), &expected.values(Role::Output));
        }
    }
    all
}

/// Gradients that are exactly zero consist of rounding errors only, so a small absolute difference
/// passes too.
fn check(layer: &Layer, shard: Shard, role: Role, got: &[f64], expected: &[f64]) {
    let largest = got.iter().zip(expected).map(|(got, expected)| (got - expected).abs()).fold(0.0, f64::max);
    let distance = distance(got, expected);
    assert!(
        distance <= BOUND || largest <= 1e-6,
        "{layer:?} of {shard:?}: {role:?} is {distance:.1e} from the CPU engine's, at most {largest:.1e}"
    );
}

/// Compares a layer in one order of warps and blocks. Other layers and tests use the other orders.
fn agrees(order: i64, layer: &Layer, samples: usize) {
    on_device(order, |engine| drop(results(engine, layer, samples)));
}

fn some_layers() -> Vec<Layer> {
    let image = Shape::image(6, 9, 8);
    let sequence = Shape::sequence(7, 12);
    let odd = Shape::features(13);
    let pool = |kernel, stride| Pool2d::new(kernel, stride).padding(1);
    let uneven = Pool2d::new(3, 2).extra_padding([0, 1]);
    let kinds: Vec<(LayerKind, &Shape)> = vec![
        (Conv2d::new(4, 3).padding(1).into(), &image),
        (Conv2d::new(7, 1).into(), &image),
        (Conv2d::rectangular(6, [1, 3]).padding_hw([0, 1]).stride(2).groups(3).without_bias().into(), &image),
        (BatchNorm::default().into(), &image),
        (LocalResponseNorm { size: 4, alpha: 0.5, beta: 0.75, k: 1.5 }.into(), &image),
        (LayerKind::Relu, &image),
        (LayerKind::Gelu, &sequence),
        (LayerKind::GeluTanh, &sequence),
        (LayerKind::Softmax, &sequence),
        (LayerKind::MaxPool2d(pool(3, 2)), &image),
        (LayerKind::MaxPool2d(uneven.clone()), &image),
        (LayerKind::AvgPool2d(pool(2, 1)), &image),
        (LayerKind::AvgPool2d(pool(3, 2).without_counting_padding()), &image),
        (LayerKind::AvgPool2d(uneven.clone()), &image),
        (LayerKind::AvgPool2d(uneven.padding(1).without_counting_padding()), &image),
        (AdaptiveAvgPool2d { output: [4, 3] }.into(), &image),
        (AdaptiveAvgPool2d { output: [1, 1] }.into(), &image),
        (LayerKind::Flatten, &image),
        (Reshape { output: Shape::new([6, 72]) }.into(), &image),
        (Permute { order: vec![2, 0, 1] }.into(), &image),
        (Permute { order: vec![1, 0] }.into(), &sequence),
        (Select { index: 3 }.into(), &sequence),
        (Dropout { probability: 0.3 }.into(), &image),
        (Dropout { probability: 0.7 }.into(), &odd),
        (Linear::new(5).into(), &sequence),
        (Linear::new(5).without_bias().into(), &sequence),
        (LayerNorm::default().into(), &sequence),
        (PositionEmbedding { positions: 9 }.into(), &sequence),
        (LayerKind::ClassToken, &sequence),
        (MultiHeadAttention { heads: 2, causal: true }.into(), &sequence),
        (MultiHeadAttention { heads: 1, causal: false }.into(), &sequence),
        (LayerKind::SoftmaxCrossEntropy, &sequence),
    ];
    let mut layers: Vec<Layer> =
        kinds.into_iter().map(|(kind, shape)| layer(kind, std::slice::from_ref(shape))).collect();
    let vector = Shape::features(12);
    layers.push(layer(Embedding { vocabulary: 20, features: 4 }, &[Shape::features(9)]));
    layers.push(layer(LayerKind::SoftmaxCrossEntropy, std::slice::from_ref(&vector)));
    layers.push(layer(BatchNorm::default(), std::slice::from_ref(&vector)));
    layers.push(layer(LayerNorm::default(), &[vector]));
    layers.push(layer(LayerKind::Add, &[image.clone(), image.clone(), image.clone()]));
    layers.push(layer(LayerKind::Add, &vec![image.clone(); 9]));
    layers.push(layer(LayerKind::Concat, &[image, Shape::image(2, 9, 8)]));
    layers
}

/// Layers agree in every order, with the same bits in all of them.
#[test]
fn every_kind_of_layer_agrees() {
    for samples in SAMPLES {
        let mut before = None;
        for order in ORDERS {
            on_device(order, |engine| {
                let all: Vec<_> = some_layers().iter().map(|layer| results(engine, layer, samples)).collect();
                let first = before.get_or_insert_with(|| all.clone());
                for (layer, (first, now)) in some_layers().iter().zip(first.iter().zip(&all)) {
                    assert_eq!(first, now, "{layer:?} in the order {order}");
                }
            });
        }
    }
}

/// Covers several tiles, gradients in slices, and whole vectors of four.
#[test]
fn larger_layers_agree() {
    let layers = [
        layer(Conv2d::new(70, 3).padding(1), &[Shape::image(9, 12, 12)]),
        layer(Conv2d::new(8, 1), &[Shape::image(80, 6, 6)]),
        layer(Linear::new(72), &[Shape::sequence(150, 68)]),
        layer(MultiHeadAttention { heads: 2, causal: true }, &[Shape::sequence(70, 3 * 2 * 68)]),
        layer(MultiHeadAttention { heads: 1, causal: false }, &[Shape::sequence(130, 3 * 16)]),
        layer(LayerKind::SoftmaxCrossEntropy, &[Shape::features(300)]),
        layer(Embedding { vocabulary: 3, features: 300 }, &[Shape::features(290)]),
    ];
    for (layer, order) in layers.iter().zip(ORDERS.iter().cycle()) {
        agrees(*order, layer, 2);
    }
}

#[test]
fn moments_may_be_added_up_over_ranks() {
    let layer = layer(BatchNorm::default(), &[Shape::image(3, 4, 5)]);
    on_device(0, |engine| {
        let cpu = CpuEngine::<f32>::new();
        for samples in [0, 3] {
            let shard = Shard::whole(samples);
            let mut expected = LayerRun::new(&cpu, Precision::F32, &layer, shard);
            let mut got = LayerRun::new(engine, Precision::F32, &layer, shard);
            let steps = [
                (Pass::ForwardMoments, Role::Moments, Pass::Forward),
                (Pass::BackwardMoments, Role::GradientMoments, Pass::Backward),
            ];
            for (before, moments, after) in steps {
                expected.run(before).unwrap();
                got.run(before).unwrap();
                // Adds the sums of another rank's shard.
                let sums = [4.0, -2.0, 1.0, 30.0, 40.0, 50.0, 20.0].into_iter();
                let sums: Vec<f64> =
                    expected.values(moments).into_iter().zip(sums).map(|(sum, other)| sum + other).collect();
                expected.set(moments, &sums);
                got.set(moments, &sums);
                expected.run(after).unwrap();
                got.run(after).unwrap();
            }
            for role in expected.results() {
                check(&layer, shard, role, &got.values(role), &expected.values(role));
            }
        }
    });
}

fn window() -> impl Strategy<Value = ([usize; 2], [usize; 2], [usize; 2], [usize; 2])> {
    ([1usize..9, 1usize..9], [1usize..5, 1usize..5], [1usize..4, 1usize..4], [0usize..3, 0usize..3])
        .prop_filter("the kernel fits", |(image, kernel, _, padding)| {
            (0..2).all(|i| kernel[i] <= image[i] + 2 * padding[i])
        })
}

fn order() -> impl Strategy<Value = i64> {
    proptest::sample::select(&ORDERS[..])
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16 * more()) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn convolutions_agree(
        (image, kernel, stride, padding) in window(),
        groups in 1usize..4,
        channels in [1usize..4, 1usize..4],
        bias: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        let kind = Conv2d { out_channels: channels[1] * groups, kernel, stride, padding, groups, bias };
        agrees(order, &layer(kind, &[Shape::image(channels[0] * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn pools_agree(
        (image, kernel, stride, padding) in window(),
        extra in [0usize..3, 0usize..3],
        count_padding: bool,
        mean: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        let padding = [0, 1].map(|i: usize| padding[i].min(kernel[i] / 2));
        let extra_padding = [0, 1].map(|i: usize| extra[i].min(kernel[i] - 1));
        let pool = Pool2d { kernel, stride, padding, extra_padding, count_padding };
        let kind = if mean { LayerKind::AvgPool2d(pool) } else { LayerKind::MaxPool2d(pool) };
        let mut graph = LayerGraph::new("test", Shape::image(2, image[0], image[1])).unwrap();
        let input = graph.input();
        // Windows that lie completely in the padding are not valid layers.
        if let Ok(id) = graph.add("layer", kind, [input]) {
            agrees(order, graph.layer(id), samples);
        }
    }

    #[test]
    fn adaptive_pools_agree(image in [1usize..9, 1usize..9], output in [1usize..9, 1usize..9], samples in 0usize..4, order in order()) {
        let kind = AdaptiveAvgPool2d { output };
        agrees(order, &layer(kind, &[Shape::image(3, image[0], image[1])]), samples);
    }

    #[test]
    fn norms_of_images_agree(image in [1usize..7, 1usize..7], channels in 1usize..9, size in 1usize..7, samples in 0usize..4, order in order()) {
        let shape = [Shape::image(channels, image[0], image[1])];
        agrees(order, &layer(LocalResponseNorm { size, alpha: 0.5, beta: 0.75, k: 1.5 }, &shape), samples);
        // For very few values per channel, a batch normalisation is almost a step function.
        if samples * image[0] * image[1] > 8 {
            agrees(order, &layer(BatchNorm { epsilon: 1e-2, momentum: 0.2 }, &shape), samples);
        }
    }

    #[test]
    fn attentions_agree(heads in 1usize..4, width in 1usize..6, positions in 1usize..9, causal: bool, samples in 0usize..4, order in order()) {
        let kind = MultiHeadAttention { heads, causal };
        agrees(order, &layer(kind, &[Shape::sequence(positions, 3 * heads * width)]), samples);
    }

    #[test]
    fn layers_of_rows_agree(positions in 1usize..6, inputs in 2usize..70, outputs in 1usize..20, bias: bool, samples in 0usize..4, order in order()) {
        let shape = [Shape::sequence(positions, inputs)];
        agrees(order, &layer(Linear { out_features: outputs, bias }, &shape), samples);
        agrees(order, &layer(LayerNorm { epsilon: 1e-2 }, &shape), samples);
        agrees(order, &layer(LayerKind::Softmax, &shape), samples);
        agrees(order, &layer(LayerKind::SoftmaxCrossEntropy, &shape), samples);
    }

    #[test]
    fn layers_of_sequences_agree(positions in 1usize..9, features in 1usize..40, vocabulary in 1usize..9, samples in 0usize..4, order in order()) {
        let shape = [Shape::sequence(positions, features)];
        agrees(order, &layer(PositionEmbedding { positions: positions + vocabulary }, &shape), samples);
        agrees(order, &layer(LayerKind::ClassToken, &shape), samples);
        agrees(order, &layer(Dropout { probability: 0.4 }, &shape), samples);
        agrees(order, &layer(Embedding { vocabulary, features }, &[Shape::features(positions)]), samples);
    }
}

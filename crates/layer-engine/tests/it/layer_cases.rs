//! Layers of every kind, for tests that compare an engine with the CPU engine.

use layer_graph::{
    AdaptiveAvgPool2d, AdditiveAttention, BatchNorm, Conv2d, ConvTranspose2d, Division, Dropout,
    ElementwiseLoss, Embedding, ExpertActivation, GroupNorm, Layer, LayerGraph, LayerKind, LayerNorm,
    LeakyRelu, Linear, LinearBiases, LocalResponseNorm, MixtureOfExperts, MultiHeadAttention, NetworkSplits,
    Pad, Permute, Pool2d, PositionEmbedding, Recurrence, RecurrentCell, RelativePositions, Reshape, RmsNorm,
    RotaryEmbedding, RotaryScaling, Scale, Select, Shape, Slice, SoftmaxCrossEntropy, Split,
};
use proptest::prelude::*;

use crate::single_layer::layer;

/// Size of an image, kernel, stride and padding.
pub(crate) type Window = ([usize; 2], [usize; 2], [usize; 2], [usize; 2]);

/// Generates an image, and a kernel that fits into it with its padding.
pub(crate) fn window() -> impl Strategy<Value = Window> {
    ([1usize..9, 1usize..9], [1usize..5, 1usize..5], [1usize..4, 1usize..4], [0usize..3, 0usize..3])
        .prop_filter("the kernel fits", |(image, kernel, _, padding)| {
            (0..2).all(|i| kernel[i] <= image[i] + 2 * padding[i])
        })
}

/// Returns a pooling of an image with two channels. Returns `None` if a window lies completely in
/// the padding, which is not a valid layer.
pub(crate) fn pool(
    (image, kernel, stride, padding): Window,
    extra: [usize; 2],
    count_padding: bool,
    mean: bool,
) -> Option<Layer> {
    let padding = [0, 1].map(|i: usize| padding[i].min(kernel[i] / 2));
    let extra_padding = [0, 1].map(|i: usize| extra[i].min(kernel[i] - 1));
    let pool = Pool2d { kernel, stride, padding, extra_padding, count_padding };
    let kind = if mean { LayerKind::AvgPool2d(pool) } else { LayerKind::MaxPool2d(pool) };
    let mut graph = LayerGraph::new("test", Shape::image(2, image[0], image[1])).unwrap();
    let input = graph.input();
    graph.add("layer", kind, [input]).ok().map(|id| graph.layer(id).clone())
}

/// Generates an attention of three inputs, and their shapes: of a sequence to itself or to another
/// one, with queries that share keys in groups, with and without a window, dropout of weights,
/// biases by distance and padding, which is a fourth input.
pub(crate) fn attention_of_three_inputs() -> impl Strategy<Value = (MultiHeadAttention, Vec<Shape>)> {
    let scale = prop_oneof![Just(None), (0.1..0.5f64).prop_map(Some)];
    let dropout = prop_oneof![Just(0.0), Just(0.4)];
    let learned = (4usize..11, 6usize..9).prop_map(|(buckets, far)| RelativePositions::new(buckets, far));
    let options = (
        (scale, dropout, prop::option::of(learned), prop::option::of(1usize..9)),
        any::<bool>(),
        prop::bool::weighted(0.3),
    );
    (1usize..12, prop::option::of(1usize..12), 1usize..4, 1usize..4, 1usize..6, options).prop_flat_map(
        |(positions, keys, key_heads, group, width, (others, linear, padding))| {
            let (scale, dropout, relative, limit) = others;
            let key_positions = keys.unwrap_or(positions);
            let heads = group * key_heads;
            let keys = Shape::sequence(key_positions, key_heads * width);
            let mut inputs = vec![Shape::sequence(positions, heads * width), keys.clone(), keys];
            inputs.extend(padding.then(|| Shape::features(key_positions)));
            let attention = move |causal| {
                let window = limit.filter(|_| causal);
                let more = LinearBiases { heads: heads + 2, first: 1, factor: 0.5 };
                let alibi = Some(more).filter(|_| linear && relative.is_none());
                MultiHeadAttention { heads, causal, window, scale, dropout, relative, alibi, padding }
            };
            let causal = any::<bool>().prop_map(move |causal| causal && key_positions == positions);
            causal.prop_map(move |causal| (attention(causal), inputs.clone()))
        },
    )
}

/// Generates an additive attention, and the shapes of its queries, keys and values.
pub(crate) fn additive_attention() -> impl Strategy<Value = (AdditiveAttention, [Shape; 3])> {
    (any::<bool>(), 1usize..8, 1usize..40, 1usize..40, 1usize..6).prop_map(
        |(normalised, positions, keys, units, features)| {
            let shapes = [(positions, units), (keys, units), (keys, features)];
            (AdditiveAttention { normalised }, shapes.map(|(rows, width)| Shape::sequence(rows, width)))
        },
    )
}

/// Generates a rotary embedding.
pub(crate) fn rotary_embedding() -> impl Strategy<Value = RotaryEmbedding> {
    let linear = (0.5..4.0f64).prop_map(|factor| RotaryScaling::Linear { factor });
    let llama3 = RotaryScaling::Llama3 {
        factor: 8.0,
        low_frequency_factor: 1.0,
        high_frequency_factor: 4.0,
        original_positions: 16,
    };
    let scaling = prop::option::of(prop_oneof![linear, Just(llama3)]);
    (1usize..5, prop::option::of(1usize..5), 0usize..9, any::<bool>(), scaling).prop_map(
        |(half, part, first, interleaved, scaling)| {
            let rotated = part.map(|part| 2 * part.min(half));
            RotaryEmbedding { first, rotated, interleaved, scaling, ..RotaryEmbedding::new(2 * half, 50.0) }
        },
    )
}

/// Generates a scaling.
pub(crate) fn any_scale() -> impl Strategy<Value = Scale> {
    let constant = (-2.0..2.0f64).prop_map(Scale::Constant);
    prop_oneof![constant, Just(Scale::Features), Just(Scale::Channels)]
}

/// Generates a transposed convolution and an image that it maps to another.
pub(crate) fn transposed_conv() -> impl Strategy<Value = (ConvTranspose2d, Shape)> {
    let pair = |low: usize, high: usize| [low..high, low..high];
    let sizes = (pair(1, 5), pair(1, 5), pair(1, 4), pair(0, 3), pair(0, 3), pair(1, 4));
    (sizes, 1usize..4, [1usize..4, 1usize..4], any::<bool>()).prop_filter_map(
        "the output is not empty",
        |((image, kernel, stride, padding, added, dilation), groups, channels, bias)| {
            let conv = ConvTranspose2d {
                out_channels: channels[1] * groups,
                kernel,
                stride,
                padding,
                output_padding: [0, 1].map(|axis| added[axis] % stride[axis]),
                dilation,
                groups,
                bias,
            };
            let shape = Shape::image(channels[0] * groups, image[0], image[1]);
            let mut graph = LayerGraph::new("test", shape.clone()).unwrap();
            graph.add("layer", conv.clone(), [graph.input()]).is_ok().then_some((conv, shape))
        },
    )
}

/// Returns any recurrence.
pub(crate) fn recurrence() -> impl Strategy<Value = Recurrence> {
    let cell = prop_oneof![Just(RecurrentCell::Lstm), Just(RecurrentCell::Gru)];
    (cell, any::<[bool; 2]>()).prop_map(|(cell, [bias, reversed])| Recurrence { cell, bias, reversed })
}

/// Returns recurrences in both directions.
fn recurrences() -> [Recurrence; 4] {
    let [lstm, gru] = [RecurrentCell::Lstm, RecurrentCell::Gru].map(Recurrence::new);
    let [last_lstm, last_gru] = [&lstm, &gru].map(|rule| rule.clone().reversed());
    [lstm, Recurrence { bias: false, ..gru }, last_lstm, last_gru]
}

/// Generates a mixture of experts, and the shapes of its inputs: of a vector or a sequence, with
/// and without a gate and a limit of positions, with experts that have no position.
pub(crate) fn mixture_of_experts() -> impl Strategy<Value = (MixtureOfExperts, [Shape; 2])> {
    use ExpertActivation::{Gelu, GeluTanh, Relu, Silu};
    let activation = prop::sample::select(vec![Relu, Gelu, GeluTanh, Silu]);
    let options = (activation, any::<bool>(), any::<bool>(), prop::option::of(1usize..6));
    let sizes = (prop::option::of(1usize..9), 1usize..7, 1usize..7);
    (sizes, 1usize..7, 1usize..7, options).prop_map(
        |((positions, features, width), experts, chosen, (activation, gated, normalised, capacity))| {
            let chosen = chosen.min(experts);
            let shape = |size: usize| {
                positions.map_or(Shape::features(size), |positions| Shape::sequence(positions, size))
            };
            let rule = MixtureOfExperts { experts, chosen, width, activation, gated, normalised, capacity };
            (rule, [shape(features), shape(experts)])
        },
    )
}

/// Returns mixtures of experts of a sequence and of a vector.
fn mixtures() -> [Layer; 4] {
    let sequence = [Shape::sequence(7, 12), Shape::sequence(7, 5)];
    let rule = || MixtureOfExperts::new(5, 2, 9);
    let plain = MixtureOfExperts {
        activation: ExpertActivation::Relu,
        gated: false,
        normalised: false,
        ..MixtureOfExperts::new(5, 3, 7)
    };
    [
        layer(rule(), &sequence),
        layer(rule().with_capacity(2), &sequence),
        layer(plain, &sequence),
        layer(
            MixtureOfExperts { activation: ExpertActivation::GeluTanh, ..rule() },
            &[Shape::features(13), Shape::features(5)],
        ),
    ]
}

/// Returns parts of a dropout over images, split by channels, or over sequences, split by features.
/// They have a part of the whole layer's random numbers.
fn dropout_parts(shape: &Shape) -> Vec<Layer> {
    let mut graph = LayerGraph::new("test", shape.clone()).unwrap();
    let mut x = graph.input();
    if shape.as_image().is_some() {
        x = graph.add("pool", LayerKind::MaxPool2d(Pool2d::new(2, 1)), [x]).unwrap();
    }
    let id = graph.add("layer", Dropout::new(0.3), [x]).unwrap();
    let (splits, division) = (NetworkSplits::new(&graph), Division { split: Split::Features, parts: 4 });
    [0, 2].map(|index| splits.part(id, division, index).unwrap().layer).to_vec()
}

/// Returns parts of an attention of three heads with dropout of weights.
fn attention_parts() -> Vec<Layer> {
    let mut graph = LayerGraph::new("test", Shape::sequence(5, 12)).unwrap();
    let [queries, keys, values] =
        ["q", "k", "v"].map(|name| graph.add(name, Linear::new(12), [graph.input()]).unwrap());
    let attention = MultiHeadAttention::new(3, true).with_dropout(0.3);
    let attention = attention.with_relative_positions(RelativePositions::new(4, 3));
    let id = graph.add("layer", attention, [queries, keys, values]).unwrap();
    let (splits, division) = (NetworkSplits::new(&graph), Division { split: Split::Features, parts: 2 });
    let padded = MultiHeadAttention::new(2, true).with_padding();
    let padded = layer(padded, &[Shape::sequence(7, 12), Shape::features(7)]);
    [0, 1].map(|index| splits.part(id, division, index).unwrap().layer).into_iter().chain([padded]).collect()
}

/// Returns attentions of queries, keys and values. The queries of some are the given sequence.
fn attentions_of_queries(sequence: &Shape) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (causal, positions) in [(true, 7), (false, 9)] {
        let keys = Shape::sequence(positions, 6);
        layers.push(layer(MultiHeadAttention::new(4, causal), &[sequence.clone(), keys.clone(), keys]));
    }
    for (kind, units) in [(AdditiveAttention::new(), 12), (AdditiveAttention::normalised(), 70)] {
        let inputs = [(7, units), (9, units), (9, 5)].map(|(rows, width)| Shape::sequence(rows, width));
        layers.push(layer(kind, &inputs));
    }
    layers
}

/// Returns rotary embeddings of a part of a head, by halves and by neighbouring features.
fn partial_rotations() -> [RotaryEmbedding; 2] {
    let halves = RotaryEmbedding { rotated: Some(4), ..RotaryEmbedding::new(6, 100.0) };
    let scaling = Some(RotaryScaling::Linear { factor: 3.0 });
    [halves.clone(), RotaryEmbedding { interleaved: true, scaling, ..halves }]
}

/// Returns convolutions of images of six channels.
fn convolutions() -> Vec<LayerKind> {
    let transposed = ConvTranspose2d {
        padding: [1, 0],
        output_padding: [0, 1],
        groups: 3,
        bias: false,
        ..ConvTranspose2d::new(9, 4, 2)
    };
    vec![
        Conv2d::new(4, 3).padding(1).into(),
        Conv2d::new(7, 1).into(),
        Conv2d::rectangular(6, [1, 3]).padding_hw([0, 1]).stride(2).groups(3).without_bias().into(),
        Conv2d::new(4, 3).dilation(2).stride(2).padding(3).into(),
        ConvTranspose2d::new(4, 3, 2).into(),
        transposed.into(),
    ]
}

/// Returns small layers of every kind.
#[allow(clippy::too_many_lines, reason = "a list")]
pub(crate) fn layers() -> Vec<Layer> {
    let image = Shape::image(6, 9, 8);
    let sequence = Shape::sequence(7, 12);
    let odd = Shape::features(13);
    let pool = |kernel, stride| Pool2d::new(kernel, stride).padding(1);
    let uneven = Pool2d::new(3, 2).extra_padding([0, 1]);
    let mut kinds: Vec<(LayerKind, &Shape)> = convolutions().into_iter().map(|kind| (kind, &image)).collect();
    kinds.extend([
        (BatchNorm::default().into(), &image),
        (BatchNorm::default().into(), &sequence),
        (LocalResponseNorm { size: 4, alpha: 0.5, beta: 0.75, k: 1.5 }.into(), &image),
        (GroupNorm { groups: 3, epsilon: 1e-2 }.into(), &image),
        (GroupNorm::new(7).into(), &sequence),
        (LayerKind::Relu, &image),
        (LayerKind::Relu6, &image),
        (LeakyRelu { negative_slope: 0.3 }.into(), &image),
        (LayerKind::HardSigmoid, &image),
        (LayerKind::HardSwish, &image),
        (LayerKind::Gelu, &sequence),
        (LayerKind::GeluTanh, &sequence),
        (LayerKind::QuickGelu, &sequence),
        (LayerKind::Silu, &image),
        (LayerKind::Sigmoid, &sequence),
        (LayerKind::Tanh, &image),
        (LayerKind::Softmax, &sequence),
        (LayerKind::MaxPool2d(pool(3, 2)), &image),
        (LayerKind::MaxPool2d(uneven.clone()), &image),
        (LayerKind::AvgPool2d(pool(2, 1)), &image),
        (LayerKind::AvgPool2d(pool(3, 2).without_counting_padding()), &image),
        (LayerKind::AvgPool2d(uneven.clone()), &image),
        (LayerKind::AvgPool2d(uneven.padding(1).without_counting_padding()), &image),
        (AdaptiveAvgPool2d { output: [4, 3] }.into(), &image),
        (AdaptiveAvgPool2d { output: [1, 1] }.into(), &image),
        (AdaptiveAvgPool2d { output: [18, 24] }.into(), &image),
        (Pad { before: [1, 0], after: [2, 3] }.into(), &image),
        (LayerKind::Flatten, &image),
        (Reshape { output: Shape::new([6, 72]) }.into(), &image),
        (Permute { order: vec![2, 0, 1] }.into(), &image),
        (Permute { order: vec![1, 0] }.into(), &sequence),
        (Select { index: 3 }.into(), &sequence),
        (Slice { start: 2, length: 3 }.into(), &sequence),
        (Slice { start: 1, length: 4 }.into(), &odd),
        (Dropout::new(0.3).into(), &image),
        (Dropout::new(0.7).into(), &odd),
        (Dropout { of_samples: true, ..Dropout::new(0.5) }.into(), &odd),
        (Linear::new(5).into(), &sequence),
        (Linear::new(5).without_bias().into(), &sequence),
        (LayerNorm::default().into(), &sequence),
        (RmsNorm::new(1e-5).into(), &sequence),
        (RmsNorm { epsilon: 1e-2, unit_offset: true }.into(), &sequence),
        (PositionEmbedding::new(9).into(), &sequence),
        (PositionEmbedding { first: 2, ..PositionEmbedding::new(10) }.into(), &sequence),
        (PositionEmbedding { first: 1, repeated: true, ..PositionEmbedding::new(3) }.into(), &sequence),
        (RotaryEmbedding { first: 5, ..RotaryEmbedding::new(6, 100.0) }.into(), &sequence),
        (LayerKind::ClassToken, &sequence),
        (Scale::Constant(0.3).into(), &image),
        (Scale::Channels.into(), &image),
        (Scale::Features.into(), &image),
        (Scale::Features.into(), &sequence),
        (Scale::Features.into(), &odd),
        (MultiHeadAttention::new(2, true).into(), &sequence),
        (MultiHeadAttention::new(1, false).into(), &sequence),
        (MultiHeadAttention::new(2, true).with_dropout(0.3).into(), &sequence),
        (MultiHeadAttention::new(2, true).with_window(3).into(), &sequence),
        (MultiHeadAttention::new(2, true).with_alibi(LinearBiases::new(2)).into(), &sequence),
        (
            MultiHeadAttention::new(2, false).with_relative_positions(RelativePositions::new(6, 5)).into(),
            &sequence,
        ),
        (LayerKind::CROSS_ENTROPY, &sequence),
        (SoftmaxCrossEntropy::smoothed(0.2).into(), &sequence),
        (SoftmaxCrossEntropy::ignoring(1).into(), &sequence),
    ]);
    let mut layers: Vec<Layer> =
        kinds.into_iter().map(|(kind, shape)| layer(kind, std::slice::from_ref(shape))).collect();
    layers.extend(recurrences().map(|rule| layer(rule, std::slice::from_ref(&sequence))));
    layers.extend(partial_rotations().map(|kind| layer(kind, std::slice::from_ref(&sequence))));
    let vector = Shape::features(12);
    layers.extend(attentions_of_queries(&sequence));
    layers.push(layer(Embedding::new(20, 4), &[Shape::features(9)]));
    let padded = Embedding { padding: Some(1), ..Embedding::new(3, 4) };
    layers.push(layer(padded, &[Shape::features(9)]));
    layers.push(layer(LayerKind::CROSS_ENTROPY, std::slice::from_ref(&vector)));
    for loss in [ElementwiseLoss::MeanSquaredError, ElementwiseLoss::BinaryCrossEntropy] {
        layers.push(layer(loss, std::slice::from_ref(&vector)));
    }
    layers.push(layer(BatchNorm::default(), std::slice::from_ref(&vector)));
    layers.push(layer(LayerNorm::default(), &[vector]));
    layers.extend(dropout_parts(&image));
    layers.extend(dropout_parts(&sequence));
    layers.extend(attention_parts());
    layers.extend(mixtures());
    layers.push(layer(LayerKind::Add, &[image.clone(), image.clone(), image.clone()]));
    layers.push(layer(LayerKind::Add, &vec![image.clone(); 9]));
    layers.push(layer(LayerKind::Multiply, &[image.clone(), image.clone()]));
    let [channels, height, width] = image.dims() else { unreachable!("an image has three dimensions") };
    layers.push(layer(LayerKind::Multiply, &[image.clone(), Shape::image(*channels, 1, 1)]));
    layers.push(layer(LayerKind::Concat, &[image.clone(), Shape::image(2, *height, *width)]));
    let [positions, _] = sequence.dims() else { unreachable!("a sequence has two dimensions") };
    layers.push(layer(LayerKind::Concat, &[sequence.clone(), Shape::sequence(*positions, 5)]));
    layers
}

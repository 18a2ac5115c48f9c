//! Every pass of every kind of layer, compared with the CPU engine.

use std::collections::BTreeMap;

use layer_engine::{
    CpuEngine, CudaEngine, ImageLayout, KernelChoice, Pass, Precision, Role, Shard, Signature,
};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, ElementwiseLoss, Embedding, Layer, LayerKind, LayerNorm,
    Linear, LocalResponseNorm, MultiHeadAttention, PositionEmbedding, Recurrence, RecurrentCell, RmsNorm,
    Shape,
};
use proptest::prelude::*;

use super::{ORDERS, case_factor, on_device};
use crate::any_engine::{LayerRun, check_loss_in_place, distance, largest_difference, losses};
use crate::layer_cases::{attention_of_three_inputs, layers, pool, transposed_conv, window};
use crate::single_layer::layer;

/// Sizes of shards: empty, one sample, and several.
const SAMPLES: [usize; 3] = [0, 1, 5];

/// A way in which the engine computes a layer.
#[derive(Debug, Clone, Copy)]
struct Way {
    choice: KernelChoice,
    precision: Precision,
    image_layout: ImageLayout,
}

impl Way {
    /// Returns the ways for a layer: only convolutions, linear layers and, in 16 bits, attention
    /// have those of libraries, only layers with images those with channels last. Convolutions have
    /// no own kernels for these.
    fn of(layer: &Layer) -> Vec<Self> {
        use KernelChoice::{Own, Vendor};
        use Precision::{Bf16, F32, Tf32};
        let has_library = matches!(
            layer.kind(),
            LayerKind::Conv2d(_) | LayerKind::ConvTranspose2d(_) | LayerKind::Linear(_)
        );
        let has_images =
            layer.input_shapes().iter().chain([layer.output_shape()]).any(|shape| shape.as_image().is_some());
        let own = [(Own, F32), (Own, Bf16)];
        let vendor = [(Vendor, F32), (Vendor, Tf32), (Vendor, Bf16)];
        let ways = |choices: &[(KernelChoice, Precision)], image_layout| -> Vec<Self> {
            choices.iter().map(|&(choice, precision)| Self { choice, precision, image_layout }).collect()
        };
        let mut all = ways(&own, ImageLayout::ChannelsFirst);
        if has_library {
            all.extend(ways(&vendor, ImageLayout::ChannelsFirst));
        } else if matches!(layer.kind(), LayerKind::MultiHeadAttention(_)) {
            all.extend(ways(&vendor[2..], ImageLayout::ChannelsFirst));
        }
        if has_images {
            all.extend(ways(if has_library { &vendor } else { &own }, ImageLayout::ChannelsLast));
        }
        all
    }

    /// Returns the maximum relative difference from the CPU engine's results, by norm.
    fn bound(self) -> f64 {
        match self.precision {
            Precision::Tf32 => 2e-3,
            Precision::Bf16 => 1e-2,
            _ => 1e-5,
        }
    }
}

/// Returns all results of a layer's passes after comparing them with the CPU engine's: a training
/// step and its recomputation, with or without the input gradient, and evaluation.
fn results(
    engine: &CudaEngine,
    way: Way,
    layer: &Layer,
    samples: usize,
    with_input_gradient: &[bool],
) -> BTreeMap<(bool, Role), Vec<f64>> {
    let engine = &engine.clone().with_choice(way.choice).with_image_layout(way.image_layout);
    let shard = Shard { first: 5, samples };
    let cpu = CpuEngine::<f32>::new();
    let mut all = BTreeMap::new();
    for &input_gradient in with_input_gradient {
        let mut expected = LayerRun::new(&cpu, Precision::F32, layer, shard);
        let mut got = LayerRun::new(engine, way.precision, layer, shard);
        copy_inputs(layer, &mut got, &mut expected);
        expected.step(input_gradient);
        got.step(input_gradient);
        for recomputes in [false, true] {
            if recomputes && Signature::of(layer, Pass::Recompute).is_some() {
                got.recompute_step(input_gradient);
            }
            for role in expected.results() {
                check(layer, shard, way, role, [&got.values(role), &expected.values(role)]);
            }
        }
        all.extend(got.results().into_iter().map(|role| ((input_gradient, role), got.values(role))));
        if Signature::of(layer, Pass::Infer).is_some() {
            expected.run(Pass::Infer).unwrap();
            got.run(Pass::Infer).unwrap();
            let outputs = [&got.values(Role::Output), &expected.values(Role::Output)];
            check(layer, shard, way, Role::Output, outputs.map(Vec::as_slice));
        }
    }
    all
}

/// Copies what a layer reads, so that both runs have the same numbers where those of one have fewer
/// bits.
fn copy_inputs(layer: &Layer, from: &mut LayerRun<'_, CudaEngine>, to: &mut LayerRun<'_, CpuEngine<f32>>) {
    let passes = [Pass::Forward, Pass::Backward].into_iter();
    for role in passes.filter_map(|pass| Signature::of(layer, pass)).flat_map(|signature| signature.reads) {
        if matches!(role, Role::Input(_) | Role::Parameters | Role::OutputGradient) {
            to.set(role, &from.values(role));
        }
    }
}

/// Gradients that are exactly zero consist of rounding errors only, so a small absolute difference
/// passes too. So does a larger one of few values, whose terms may cancel: terms are at most about
/// 1, and their rounding is not relative to the sum. The same holds for the gradients of queries,
/// keys and relative positions, which are zero if all values are equal, as those of one key are.
/// Dropout makes their terms larger.
fn check(layer: &Layer, shard: Shard, way: Way, role: Role, [got, expected]: [&[f64]; 2]) {
    let (distance, largest) = (distance(got, expected), largest_difference(got, expected));
    let (is_attention, dropout) = match layer.kind() {
        LayerKind::MultiHeadAttention(rule) => (true, rule.dropout),
        _ => (false, 0.0),
    };
    // The backward pass of an attention reads its rounded output.
    let bound = if is_attention { 2.0 * way.bound() } else { way.bound() };
    let is_of_scores = is_attention
        && matches!(role, Role::InputGradient(0 | 1) | Role::ParameterGradient)
        && layer.input_shapes().len() > 1;
    let largest_term = if is_of_scores { 1.0 / (1.0 - dropout) } else { 1.0 };
    let may_cancel = got.len() < 16 || is_of_scores;
    assert!(
        distance <= bound || largest <= if may_cancel { way.bound() / 2.0 * largest_term } else { 1e-6 },
        "{layer:?} of {shard:?}, {way:?}: {role:?} is {distance:.1e} from the CPU engine's, at most \
         {largest:.1e}"
    );
}

/// Compares a layer in one order of warps and blocks. Other layers and tests use the other orders.
fn compare(order: i64, layer: &Layer, samples: usize) {
    on_device(order, |engine| {
        for way in Way::of(layer) {
            results(engine, way, layer, samples, &[true, false]);
        }
    });
}

/// Compares large layers, each way with or without the input gradient by turns, and each layer in
/// one of the orders.
fn compare_large(layers: &[Layer]) {
    for (layer, order) in layers.iter().zip(ORDERS.into_iter().cycle()) {
        on_device(order, |engine| {
            for (way, input_gradient) in Way::of(layer).into_iter().zip([true, false].into_iter().cycle()) {
                results(engine, way, layer, 2, &[input_gradient]);
            }
        });
    }
}

#[test]
fn loss_in_place_matches_its_ordinary_passes_bitwise() {
    for order in ORDERS {
        on_device(order, |engine| {
            for layer in losses() {
                for samples in SAMPLES {
                    for precision in [Precision::F32, Precision::Bf16] {
                        check_loss_in_place(engine, precision, &layer, Shard { first: 5, samples });
                    }
                }
            }
        });
    }
}

/// Layers agree in every order, with the same bits in all of them.
#[test]
fn layers_match_cpu_engine_in_every_order() {
    for (samples, orders) in SAMPLES.into_iter().zip([&ORDERS[..1], &ORDERS[1..2], &ORDERS[..]]) {
        let mut before = None;
        for &order in orders {
            on_device(order, |engine| {
                let layers = layers();
                let ways =
                    layers.iter().flat_map(|layer| Way::of(layer).into_iter().map(move |way| (layer, way)));
                let all: Vec<_> = ways
                    .clone()
                    .map(|(layer, way)| results(engine, way, layer, samples, &[true, false]))
                    .collect();
                let first = before.get_or_insert_with(|| all.clone());
                for ((layer, way), (first, now)) in ways.zip(first.iter().zip(&all)) {
                    assert_eq!(first, now, "{layer:?}, {way:?}, in the order {order}");
                }
            });
        }
    }
}

/// Returns an attention of three inputs with these numbers of positions of queries and keys, and
/// this number of key heads of this width.
fn attention(
    rule: &MultiHeadAttention,
    [positions, key_positions]: [usize; 2],
    [key_heads, width]: [usize; 2],
) -> Layer {
    let keys = Shape::sequence(key_positions, key_heads * width);
    layer(rule.clone(), &[Shape::sequence(positions, rule.heads * width), keys.clone(), keys])
}

/// Covers several tiles, products and moments in slices, whole vectors of four, strided
/// convolutions with phases of different sizes, and phases without taps.
#[test]
fn layers_of_several_tiles_match_cpu_engine() {
    let layers = [
        layer(Conv2d::new(70, 3).padding(1), &[Shape::image(9, 12, 12)]),
        layer(Conv2d::new(8, 1), &[Shape::image(80, 6, 6)]),
        layer(Conv2d::new(64, 3).padding(1).stride(2).groups(2), &[Shape::image(120, 5, 5)]),
        layer(Conv2d::new(9, 5).padding(3).stride(3), &[Shape::image(7, 11, 10)]),
        layer(Conv2d::new(70, 1).stride(2), &[Shape::image(5, 9, 8)]),
        layer(BatchNorm::default(), &[Shape::image(3, 35, 33)]),
        layer(BatchNorm::default(), &[Shape::image(70, 5, 6)]),
        layer(BatchNorm::default(), &[Shape::image(36, 13, 11)]),
        layer(Linear::new(270), &[Shape::features(270)]),
        layer(Linear::new(72), &[Shape::sequence(150, 68)]),
        layer(MultiHeadAttention::new(2, true), &[Shape::sequence(70, 3 * 2 * 68)]),
        layer(MultiHeadAttention::new(2, true), &[Shape::sequence(67, 3 * 2 * 72)]),
        layer(MultiHeadAttention::new(1, false), &[Shape::sequence(130, 3 * 16)]),
        attention(&MultiHeadAttention::new(2, true), [70, 70], [1, 8]),
        attention(&MultiHeadAttention::new(2, true).with_window(50), [150, 150], [1, 8]),
        attention(&MultiHeadAttention::new(1, true).with_window(70), [200, 200], [1, 4]),
        attention(&MultiHeadAttention::new(1, false).scaled_by(0.2), [67, 130], [1, 68]),
        layer(LayerKind::CROSS_ENTROPY, &[Shape::features(300)]),
        layer(Embedding::new(3, 300), &[Shape::features(290)]),
    ];
    compare_large(&layers);
}

/// Covers products with enough rows or columns for large tiles.
#[test]
fn layers_of_large_tiles_match_cpu_engine() {
    let layers = [
        layer(Conv2d::new(20, 1), &[Shape::image(20, 28, 151)]),
        layer(Conv2d::new(8, 3).padding(1), &[Shape::image(939, 3, 3)]),
        layer(Linear::new(20), &[Shape::sequence(4228, 20)]),
        layer(Linear::new(8), &[Shape::features(8451)]),
    ];
    compare_large(&layers);
}

#[test]
fn batch_norm_accepts_reduced_moments() {
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
                check(&layer, shard, Way::of(&layer)[0], role, [&got.values(role), &expected.values(role)]);
            }
        }
    });
}

fn order() -> impl Strategy<Value = i64> {
    proptest::sample::select(&ORDERS[..])
}

fn cases() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(16 * case_factor()) }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn convolutions_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        groups in 1usize..4,
        channels in [1usize..4, 1usize..4],
        bias: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        let plain = Conv2d::rectangular(channels[1] * groups, kernel);
        let kind = Conv2d { stride, padding, groups, bias, ..plain };
        compare(order, &layer(kind, &[Shape::image(channels[0] * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn dilated_and_transposed_convolutions_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        dilation in [1usize..4, 1usize..4],
        (transposed, shape) in transposed_conv(),
        samples in 0usize..4,
        order in order(),
    ) {
        let image = [0, 1].map(|axis| image[axis] + (dilation[axis] - 1) * (kernel[axis] - 1));
        let kind = Conv2d { stride, padding, dilation, ..Conv2d::rectangular(3, kernel) };
        compare(order, &layer(kind, &[Shape::image(2, image[0], image[1])]), samples);
        compare(order, &layer(transposed, &[shape]), samples);
    }

    #[test]
    fn pools_match_cpu_engine(
        (image, kernel, stride, padding) in window(),
        extra in [0usize..3, 0usize..3],
        count_padding: bool,
        mean: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        if let Some(layer) = pool((image, kernel, stride, padding), extra, count_padding, mean) {
            compare(order, &layer, samples);
        }
    }

    #[test]
    fn adaptive_pools_match_cpu_engine(
        image in [1usize..9, 1usize..9],
        output in [1usize..9, 1usize..9],
        samples in 0usize..4,
        order in order(),
    ) {
        let kind = AdaptiveAvgPool2d { output };
        compare(order, &layer(kind, &[Shape::image(3, image[0], image[1])]), samples);
    }

    #[test]
    fn image_norms_match_cpu_engine(
        image in [1usize..7, 1usize..7],
        channels in 1usize..9,
        size in 1usize..7,
        samples in 0usize..4,
        order in order(),
    ) {
        let shape = [Shape::image(channels, image[0], image[1])];
        compare(order, &layer(LocalResponseNorm { size, alpha: 0.5, beta: 0.75, k: 1.5 }, &shape), samples);
        // For very few values per channel, a batch normalisation is almost a step function.
        if samples * image[0] * image[1] > 8 {
            compare(order, &layer(BatchNorm { epsilon: 1e-2, momentum: 0.2 }, &shape), samples);
        }
    }

    #[test]
    fn attentions_match_cpu_engine(
        heads in 1usize..4,
        width in prop_oneof![1usize..6, Just(8), Just(24)],
        positions in 1usize..9,
        causal: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        let kind = MultiHeadAttention::new(heads, causal);
        compare(order, &layer(kind, &[Shape::sequence(positions, 3 * heads * width)]), samples);
    }

    #[test]
    fn attentions_of_three_inputs_match_cpu_engine(
        (attention, inputs) in attention_of_three_inputs(),
        samples in 0usize..4,
        order in order(),
    ) {
        compare(order, &layer(attention, &inputs), samples);
    }

    #[test]
    fn row_layers_match_cpu_engine(
        positions in 1usize..6,
        inputs in 2usize..70,
        outputs in 1usize..20,
        bias: bool,
        samples in 0usize..4,
        order in order(),
    ) {
        let shape = [Shape::sequence(positions, inputs)];
        compare(order, &layer(Linear { out_features: outputs, bias }, &shape), samples);
        compare(order, &layer(LayerNorm { epsilon: 1e-2 }, &shape), samples);
        compare(order, &layer(RmsNorm { epsilon: 1e-2, unit_offset: bias }, &shape), samples);
        compare(order, &layer(LayerKind::Softmax, &shape), samples);
        compare(order, &layer(LayerKind::CROSS_ENTROPY, &shape), samples);
        compare(order, &layer(ElementwiseLoss::MeanSquaredError, &shape), samples);
        compare(order, &layer(ElementwiseLoss::BinaryCrossEntropy, &shape), samples);
    }

    #[test]
    fn sequence_layers_match_cpu_engine(
        positions in 1usize..9,
        features in 1usize..40,
        vocabulary in 1usize..9,
        samples in 0usize..4,
        order in order(),
    ) {
        let shape = [Shape::sequence(positions, features)];
        compare(order, &layer(PositionEmbedding::new(positions + vocabulary), &shape), samples);
        compare(order, &layer(LayerKind::ClassToken, &shape), samples);
        let gates = [Shape::sequence(positions, 12 * (1 + features % 4))];
        compare(order, &layer(Recurrence::new(RecurrentCell::Lstm), &gates), samples);
        let reversed = Recurrence { bias: false, ..Recurrence::new(RecurrentCell::Gru).reversed() };
        compare(order, &layer(reversed, &gates), samples);
        compare(order, &layer(Dropout::new(0.4), &shape), samples);
        compare(order, &layer(Embedding::new(vocabulary, features), &[Shape::features(positions)]), samples);
    }
}

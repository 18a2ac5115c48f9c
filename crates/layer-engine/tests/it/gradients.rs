//! Backward passes of all layers, compared with central differences of the forward pass in double
//! precision.

use layer_engine::{CpuEngine, Pass, Role, Shard};
use layer_graph::{
    AdaptiveAvgPool2d, BatchNorm, Conv2d, Dropout, ElementwiseLoss, Embedding, GroupNorm, Layer, LayerKind,
    LayerNorm, LeakyRelu, Linear, LocalResponseNorm, MixtureOfExperts, MultiHeadAttention, Pad, Permute,
    Pool2d, PositionEmbedding, RelativePositions, Reshape, RmsNorm, Select, Shape, Slice,
    SoftmaxCrossEntropy,
};
use proptest::prelude::*;

use crate::layer_cases::{
    additive_attention, any_scale, attention_of_three_inputs, mixture_of_experts, recurrence,
    rotary_embedding, transposed_conv,
};
use crate::single_layer::{SingleLayer, layer};

/// Number of elements of each gradient that are checked.
const CHECKED: usize = 16;
const STEP: f64 = 1e-5;

/// Returns the sum of the outputs weighted by the output gradient. The backward pass computes the
/// gradients of this objective.
fn objective(layer: &mut SingleLayer<f64>) -> f64 {
    layer.forward();
    layer.buffers[&Role::Output].iter().zip(&layer.buffers[&Role::OutputGradient]).map(|(y, g)| y * g).sum()
}

fn check(layer: Layer, samples: usize) {
    let shard = Shard { first: 5, samples };
    let mut layer = SingleLayer::new(layer, shard, CpuEngine::new());
    layer.forward();
    layer.backward();
    // Tokens are integers: there is no difference quotient.
    let inputs =
        if let LayerKind::Embedding(_) = layer.layer.kind() { 0 } else { layer.layer.input_shapes().len() };
    let pairs = (0..inputs)
        .map(|slot| (Role::Input(slot), Role::InputGradient(slot)))
        .chain((layer.layer.parameter_count() > 0).then_some((Role::Parameters, Role::ParameterGradient)));
    for (variable, gradient) in pairs {
        let gradient = layer.buffers[&gradient].clone();
        let count = layer.buffers[&variable].len();
        for checked in 0..CHECKED.min(count) {
            // Steps that are coprime to the length visit the whole buffer.
            let index = (checked * 7919 + checked * count / CHECKED) % count;
            let before = layer.buffers[&variable][index];
            let [above, below] = [STEP, -STEP].map(|step| {
                layer.buffers.get_mut(&variable).unwrap()[index] = before + step;
                objective(&mut layer)
            });
            layer.buffers.get_mut(&variable).unwrap()[index] = before;
            let expected = (above - below) / (2.0 * STEP);
            let got = gradient[index];
            assert!(
                (got - expected).abs() <= 1e-7 * (1.0 + expected.abs().max(above.abs())),
                "{:?} {variable:?}[{index}]: {got}, by differences {expected}",
                layer.layer
            );
        }
    }
    // Without the input gradient, the gradient of the parameters is the same.
    if let [Pass::BackwardParameters] = Pass::backward(&layer.layer, false) {
        let gradient = layer.buffers[&Role::ParameterGradient].clone();
        layer.forward();
        layer.run(Pass::BackwardParameters).unwrap();
        assert_eq!(layer.buffers[&Role::ParameterGradient], gradient);
    }
}

fn size() -> impl Strategy<Value = [usize; 2]> {
    [1usize..9, 1usize..9]
}

/// Returns an image, and a kernel that fits into it with its padding.
fn window() -> impl Strategy<Value = ([usize; 2], [usize; 2], [usize; 2], [usize; 2])> {
    (size(), [1usize..5, 1usize..5], [1usize..4, 1usize..4], [0usize..3, 0usize..3])
        .prop_filter("the kernel fits", |(image, kernel, _, padding)| {
            (0..2).all(|i| kernel[i] <= image[i] + 2 * padding[i])
        })
}

fn pool() -> impl Strategy<Value = (usize, [usize; 2], Pool2d)> {
    (1usize..4, window()).prop_map(|(channels, (image, kernel, stride, padding))| {
        let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
        let kernel = [kernel[0].min(image[0]), kernel[1].min(image[1])];
        let padding = [padding[0].min(kernel[0] / 2), padding[1].min(kernel[1] / 2)];
        let count_padding = channels == 1;
        (channels, image, Pool2d { kernel, stride, padding, count_padding, ..Pool2d::new(1, 1) })
    })
}

/// An image that does not fit into one block of columns.
#[test]
fn conv_of_a_large_image_gradients_match_differences() {
    for stride in [1, 2] {
        let kind = Conv2d::new(4, 5).padding(2).stride(stride).groups(2);
        check(layer(kind, &[Shape::image(32, 36 * stride, 41 * stride)]), 1);
    }
}

fn activation() -> impl Strategy<Value = LayerKind> {
    use LayerKind::{Gelu, GeluTanh, HardSigmoid, HardSwish, QuickGelu, Relu6, Sigmoid, Silu, Tanh};
    proptest::sample::select(vec![
        Relu6,
        LeakyRelu { negative_slope: 0.2 }.into(),
        HardSigmoid,
        HardSwish,
        Gelu,
        GeluTanh,
        QuickGelu,
        Silu,
        Sigmoid,
        Tanh,
    ])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn conv_gradients_match_differences(
        (image, kernel, stride, padding) in window(),
        groups in 1usize..4,
        channels in [1usize..4, 1usize..4],
        bias: bool,
        samples in 0usize..5,
    ) {
        let plain = Conv2d::rectangular(channels[1] * groups, kernel);
        let kind = Conv2d { stride, padding, groups, bias, ..plain };
        check(layer(kind, &[Shape::image(channels[0] * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn dilated_conv_gradients_match_differences(
        (image, kernel, stride, padding) in window(),
        dilation in [1usize..4, 1usize..4],
        groups in 1usize..3,
        samples in 0usize..4,
    ) {
        let image = [0, 1].map(|axis| image[axis] + (dilation[axis] - 1) * (kernel[axis] - 1));
        let kind =
            Conv2d { stride, padding, dilation, groups, ..Conv2d::rectangular(2 * groups, kernel) };
        check(layer(kind, &[Shape::image(3 * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn transposed_conv_gradients_match_differences(
        (conv, shape) in transposed_conv(),
        samples in 0usize..4,
    ) {
        check(layer(conv, &[shape]), samples);
    }

    #[test]
    fn pointwise_conv_gradients_match_differences(
        image in size(),
        groups in 1usize..3,
        channels in [1usize..5, 1usize..5],
        samples in 0usize..5,
    ) {
        let kind = Conv2d::new(channels[1] * groups, 1).groups(groups);
        check(layer(kind, &[Shape::image(channels[0] * groups, image[0], image[1])]), samples);
    }

    #[test]
    fn linear_gradients_match_differences(
        inputs in 1usize..40,
        outputs in 1usize..40,
        bias: bool,
        samples in 0usize..9,
    ) {
        check(layer(Linear { out_features: outputs, bias }, &[Shape::features(inputs)]), samples);
    }

    #[test]
    fn batch_norm_gradients_match_differences(
        channels in 1usize..4,
        image in size(),
        vector: bool,
        samples in 0usize..5,
    ) {
        // A batch norm over two values is almost a step function; differences need more values.
        let samples = if samples * image[0] * image[1] < 4 { 4 * samples } else { samples };
        let [height, width] = image;
        let shape = if vector { Shape::features(channels) } else { Shape::image(channels, height, width) };
        let samples = if vector { 4 * samples } else { samples };
        check(layer(BatchNorm { epsilon: 1e-2, momentum: 0.1 }, &[shape]), samples);
    }

    #[test]
    fn relu_gradients_match_differences(features in 1usize..40, samples in 0usize..5) {
        check(layer(LayerKind::Relu, &[Shape::features(features)]), samples);
    }

    #[test]
    fn activation_gradients_match_differences(
        kind in activation(),
        features in 1usize..40,
        samples in 0usize..5,
    ) {
        check(layer(kind, &[Shape::features(features)]), samples);
    }

    #[test]
    fn product_gradients_match_differences(channels in 1usize..20, samples in 0usize..5) {
        let shape = || Shape::image(channels, 1, 2);
        check(layer(LayerKind::Multiply, &[shape(), shape()]), samples);
        let of_channels = Shape::image(channels, 1, 1);
        check(layer(LayerKind::Multiply, &[Shape::image(channels, 3, 4), of_channels]), samples.min(2));
    }

    #[test]
    fn local_response_norm_gradients_match_differences(
        channels in 1usize..6,
        size in 1usize..5,
        samples in 0usize..3,
    ) {
        let norm = LocalResponseNorm { size, alpha: 0.7, beta: 0.75, k: 1.5 };
        check(layer(norm, &[Shape::image(channels, 2, 3)]), samples);
    }

    #[test]
    fn max_pool_gradients_match_differences((channels, image, pool) in pool(), samples in 0usize..4) {
        check(layer(LayerKind::MaxPool2d(pool), &[Shape::image(channels, image[0], image[1])]), samples);
    }

    #[test]
    fn avg_pool_gradients_match_differences((channels, image, pool) in pool(), samples in 0usize..4) {
        check(layer(LayerKind::AvgPool2d(pool), &[Shape::image(channels, image[0], image[1])]), samples);
    }

    #[test]
    fn adaptive_avg_pool_gradients_match_differences(
        channels in 1usize..4,
        image in size(),
        output in size(),
        samples in 0usize..4,
    ) {
        let kind = AdaptiveAvgPool2d { output };
        check(layer(kind, &[Shape::image(channels, image[0], image[1])]), samples);
    }

    #[test]
    fn flatten_gradients_match_differences(channels in 1usize..4, image in size(), samples in 0usize..4) {
        check(layer(LayerKind::Flatten, &[Shape::image(channels, image[0], image[1])]), samples);
    }

    #[test]
    fn concat_gradients_match_differences(
        channels in prop::collection::vec(1usize..4, 2..4),
        image in size(),
        samples in 0usize..4,
    ) {
        let join = |shape: &dyn Fn(usize) -> Shape| {
            let shapes: Vec<_> = channels.iter().map(|&channels| shape(channels)).collect();
            check(layer(LayerKind::Concat, &shapes), samples);
        };
        join(&|channels| Shape::image(channels, image[0], image[1]));
        join(&|features| Shape::sequence(image[0], features));
        join(&Shape::features);
    }

    #[test]
    fn add_gradients_match_differences(
        terms in 2usize..4,
        channels in 1usize..4,
        image in size(),
        samples in 0usize..4,
    ) {
        check(layer(LayerKind::Add, &vec![Shape::image(channels, image[0], image[1]); terms]), samples);
    }

    #[test]
    fn dropout_gradients_match_differences(
        features in 1usize..40,
        (probability, of_samples) in (0.0..0.9, any::<bool>()),
        samples in 0usize..5,
    ) {
        check(layer(Dropout { probability, of_samples }, &[Shape::features(features)]), samples);
    }

    #[test]
    fn softmax_cross_entropy_gradients_match_differences(
        classes in 1usize..20,
        label_smoothing in prop_oneof![Just(0.0), 0.0..1.0],
        ignored_label: Option<bool>,
        samples in 0usize..5,
    ) {
        let rule = SoftmaxCrossEntropy { label_smoothing, ignored_label: ignored_label.map(i32::from) };
        check(layer(rule, &[Shape::features(classes)]), samples);
    }

    #[test]
    fn elementwise_losses_gradients_match_differences(
        shape in prop::sample::select(vec![
            Shape::features(7),
            Shape::sequence(3, 4),
            Shape::image(2, 3, 2),
        ]),
        squared: bool,
        samples in 0usize..5,
    ) {
        let loss =
            if squared { ElementwiseLoss::MeanSquaredError } else { ElementwiseLoss::BinaryCrossEntropy };
        check(layer(loss, &[shape]), samples);
    }

    #[test]
    fn softmax_cross_entropy_of_a_sequence_gradients_match_differences(
        positions in 1usize..5,
        classes in 1usize..9,
        samples in 0usize..4,
    ) {
        check(layer(LayerKind::CROSS_ENTROPY, &[Shape::sequence(positions, classes)]), samples);
    }

    #[test]
    fn softmax_gradients_match_differences(
        positions in 1usize..5,
        classes in 1usize..20,
        samples in 0usize..4,
    ) {
        check(layer(LayerKind::Softmax, &[Shape::sequence(positions, classes)]), samples);
    }

    #[test]
    fn linear_of_a_sequence_gradients_match_differences(
        positions in 1usize..6,
        sides in [1usize..9, 1usize..9],
        bias: bool,
        samples in 0usize..4,
    ) {
        let kind = Linear { out_features: sides[1], bias };
        check(layer(kind, &[Shape::sequence(positions, sides[0])]), samples);
    }

    #[test]
    fn linear_of_an_image_gradients_match_differences(
        size in [1usize..4, 1usize..4],
        sides in [1usize..6, 1usize..6],
        samples in 0usize..4,
    ) {
        check(layer(Linear::new(sides[1]), &[Shape::new([size[0], size[1], sides[0]])]), samples);
    }

    #[test]
    fn layer_norm_of_an_image_gradients_match_differences(
        size in [1usize..4, 1usize..4],
        features in 3usize..20,
        samples in 0usize..4,
    ) {
        check(layer(LayerNorm { epsilon: 1e-2 }, &[Shape::new([size[0], size[1], features])]), samples);
    }

    #[test]
    fn layer_norm_gradients_match_differences(
        positions in 1usize..6,
        features in 3usize..40,
        vector: bool,
        samples in 0usize..4,
    ) {
        let shape = if vector { Shape::features(features) } else { Shape::sequence(positions, features) };
        check(layer(LayerNorm { epsilon: 1e-2 }, &[shape]), samples);
    }

    #[test]
    fn rms_norm_gradients_match_differences(
        positions in 1usize..6,
        features in 1usize..40,
        unit_offset: bool,
        vector: bool,
        samples in 0usize..4,
    ) {
        let shape = if vector { Shape::features(features) } else { Shape::sequence(positions, features) };
        check(layer(RmsNorm { epsilon: 1e-2, unit_offset }, &[shape]), samples);
    }

    #[test]
    fn recurrence_gradients_match_differences(
        positions in 1usize..6,
        width in 1usize..6,
        rule in recurrence(),
        samples in prop_oneof![0usize..4, 17usize..19],
    ) {
        let shape = Shape::sequence(positions, rule.cell.gates() * width);
        check(layer(rule, &[shape]), samples);
    }

    #[test]
    fn mixture_of_experts_gradients_match_differences(
        (rule, inputs) in mixture_of_experts(),
        samples in 0usize..4,
    ) {
        check(layer(rule, &inputs), samples);
    }

    #[test]
    fn embedding_gradients_match_differences(
        positions in 1usize..9,
        vocabulary in 1usize..40,
        features in 1usize..5,
        samples in 0usize..4,
    ) {
        check(layer(Embedding::new(vocabulary, features), &[Shape::features(positions)]), samples);
    }

    #[test]
    fn scale_gradients_match_differences(
        dims in [1usize..5, 1usize..5, 1usize..80],
        rule in any_scale(),
        samples in 0usize..4,
    ) {
        let [height, width, channels] = dims;
        check(layer(rule, &[Shape::image(channels, height, width)]), samples);
    }

    #[test]
    fn position_embedding_gradients_match_differences(
        positions in 1usize..6,
        longer in 0usize..3,
        first in 0usize..3,
        repeated: bool,
        features in 1usize..6,
        samples in 0usize..4,
    ) {
        let kind = PositionEmbedding { positions: first + positions + longer, first, repeated };
        check(layer(kind, &[Shape::sequence(positions, features)]), samples);
    }

    #[test]
    fn rotary_embedding_gradients_match_differences(
        positions in 1usize..6,
        heads in 1usize..4,
        kind in rotary_embedding(),
        samples in 0usize..4,
    ) {
        let features = heads * kind.width;
        check(layer(kind, &[Shape::sequence(positions, features)]), samples);
    }

    #[test]
    fn class_token_gradients_match_differences(
        positions in 1usize..6,
        features in 1usize..6,
        samples in 0usize..4,
    ) {
        check(layer(LayerKind::ClassToken, &[Shape::sequence(positions, features)]), samples);
    }

    #[test]
    fn attention_gradients_match_differences(
        positions in 1usize..12,
        heads in 1usize..4,
        width in 1usize..6,
        causal: bool,
        samples in 0usize..3,
    ) {
        let shape = Shape::sequence(positions, 3 * heads * width);
        check(layer(MultiHeadAttention::new(heads, causal), &[shape]), samples);
    }

    #[test]
    fn gradients_of_attention_of_three_inputs_match_differences(
        (attention, inputs) in attention_of_three_inputs(),
        samples in 0usize..3,
    ) {
        check(layer(attention, &inputs), samples);
    }

    #[test]
    fn additive_attention_gradients_match_differences(
        (attention, inputs) in additive_attention(),
        samples in 0usize..3,
    ) {
        check(layer(attention, &inputs), samples);
    }

    #[test]
    fn permute_gradients_match_differences(
        dims in [1usize..4, 1usize..4, 1usize..4],
        seed in 0usize..6,
        samples in 0usize..3,
    ) {
        let orders = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        check(layer(Permute { order: orders[seed].to_vec() }, &[Shape::new(dims)]), samples);
    }

    #[test]
    fn reshape_gradients_match_differences(rows in 1usize..5, columns in 1usize..5, samples in 0usize..3) {
        let kind = Reshape { output: Shape::new([columns, rows]) };
        check(layer(kind, &[Shape::new([rows, columns])]), samples);
    }

    #[test]
    fn select_gradients_match_differences(
        (positions, index) in (1usize..6).prop_flat_map(|n| (Just(n), 0..n)),
        features in 1usize..5,
        samples in 0usize..3,
    ) {
        check(layer(Select { index }, &[Shape::sequence(positions, features)]), samples);
    }

    #[test]
    fn group_norm_gradients_match_differences(
        groups in 1usize..4,
        of_group in 1usize..4,
        image in size(),
        samples in 0usize..3,
    ) {
        // A norm over two values is almost a step function.
        let [height, width] = image;
        let shape = Shape::image(groups * of_group, 3 + height, width);
        check(layer(GroupNorm::new(groups), &[shape]), samples);
    }

    #[test]
    fn pad_gradients_match_differences(
        before in [0usize..4, 0usize..4],
        after in [0usize..4, 0usize..4],
        samples in 0usize..3,
    ) {
        check(layer(Pad { before, after }, &[Shape::image(2, 2, 3)]), samples);
    }

    #[test]
    fn slice_gradients_match_differences(
        (start, length, rest) in (0usize..4, 1usize..4, 0usize..4),
        samples in 0usize..3,
    ) {
        check(layer(Slice { start, length }, &[Shape::image(start + length + rest, 2, 3)]), samples);
    }
}

/// Experts with more than one block of positions, and with less.
#[test]
fn mixture_of_many_positions_gradients_match_differences() {
    let inputs = [Shape::sequence(150, 12), Shape::sequence(150, 3)];
    check(layer(MixtureOfExperts::new(3, 2, 5), &inputs), 2);
    check(layer(MixtureOfExperts::new(3, 2, 5).with_capacity(90), &inputs), 2);
}

/// A sequence with more than one block of queries.
#[test]
fn attention_of_a_long_sequence_gradients_match_differences() {
    for causal in [false, true] {
        check(layer(MultiHeadAttention::new(2, causal), &[Shape::sequence(150, 24)]), 2);
        let grouped = [(150, 12), (150, 6), (150, 6)].map(|(rows, width)| Shape::sequence(rows, width));
        check(layer(MultiHeadAttention::new(4, causal), &grouped), 2);
        let relative = RelativePositions::new(32, 100);
        check(layer(MultiHeadAttention::new(4, causal).with_relative_positions(relative), &grouped), 2);
    }
    check(layer(MultiHeadAttention::new(2, true).with_window(70), &[Shape::sequence(150, 24)]), 1);
}

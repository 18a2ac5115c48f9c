//! Activations, products of elements, softmax and dropout. Each function adds the launches of a
//! pass to a `KernelBuilder`, a kernel under preparation. It fails as the functions of
//! `KernelBuilder` do.

use layer_graph::{Dropout, Layer, LayerKind, Scale};

use super::NAME;
use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, MAX_ELEMENTS, size};
use super::module::Family;
use crate::random::{Purpose, RandomStream};
use crate::signature::derives_from_output;
use crate::{EngineError, Pass, Role, Shard};

/// Adds the launch of a pass of an activation over `elements` elements of all samples.
pub(super) fn elementwise(
    builder: &mut KernelBuilder<'_>,
    kind: &LayerKind,
    elements: usize,
    backward: bool,
) -> Result<(), EngineError> {
    use LayerKind as K;
    let [forward, derivative] = match kind {
        K::Relu => ["relu_forward", "relu_backward"],
        K::LeakyRelu(_) => ["leaky_relu_forward", "leaky_relu_backward"],
        K::Relu6 => ["relu6_forward", "relu6_backward"],
        K::HardSigmoid => ["hard_sigmoid_forward", "hard_sigmoid_backward"],
        K::HardSwish => ["hard_swish_forward", "hard_swish_backward"],
        K::Gelu => ["gelu_forward", "gelu_backward"],
        K::QuickGelu => ["quick_gelu_forward", "quick_gelu_backward"],
        K::Silu => ["silu_forward", "silu_backward"],
        K::Sigmoid => ["sigmoid_forward", "sigmoid_backward"],
        K::Tanh => ["tanh_forward", "tanh_backward"],
        _ => ["gelu_tanh_forward", "gelu_tanh_backward"],
    };
    let mut arguments = vec![size(elements)];
    if let K::LeakyRelu(rule) = kind {
        arguments.push(Argument::F32(rule.negative_slope as f32));
    }
    if !backward {
        arguments.extend([Role::Input(0), Role::Output].map(|role| builder.operand(role)));
        return builder.for_each((Family::Activation, forward), elements, arguments);
    }
    let from = if derives_from_output(kind) { Role::Output } else { Role::Input(0) };
    let operands = [from, Role::OutputGradient, Role::InputGradient(0)];
    arguments.extend(operands.map(|role| builder.operand(role)));
    builder.for_each((Family::Activation, derivative), elements, arguments)
}

/// Adds the launch of a pass of a product of two inputs over `samples` samples.
pub(super) fn multiply(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    samples: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let [elements, rows] = [0, 1].map(|slot| samples * layer.input_shapes()[slot].elements());
    let reads = [Role::Input(0), Role::Input(1), Role::OutputGradient].map(|role| builder.operand(role));
    let writes = [Role::InputGradient(0), Role::InputGradient(1)].map(|role| builder.operand(role));
    let forward = [reads[0], reads[1], builder.operand(Role::Output)];
    let backwards = [&reads[..], &writes[..]].concat();
    if elements == rows {
        let sizes = [size(elements)];
        return if backward {
            let arguments = [&sizes[..], &backwards].concat();
            builder.for_each((Family::Activation, "multiply_backward"), elements, arguments)
        } else {
            let arguments = [&sizes[..], &forward].concat();
            builder.for_each((Family::Activation, "multiply_forward"), elements, arguments)
        };
    }
    let adjacent = builder.device().image_layout.adjacent_channels(layer.output_shape());
    let sizes = [adjacent, elements / rows].map(size);
    if backward {
        let arguments = [&[size(rows)], &sizes[..], &backwards].concat();
        builder.for_each_row((Family::Activation, "channel_product_backward"), rows, arguments)
    } else {
        let arguments = [&[size(elements)], &sizes[..], &forward].concat();
        builder.for_each((Family::Activation, "channel_product_forward"), elements, arguments)
    }
}

/// Adds the launches of a pass of a scaling of `samples` samples.
pub(super) fn scale(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &Scale,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    let sample = layer.output_shape();
    let elements = samples * sample.elements();
    let count = rule.factors(sample).max(1);
    // Channels are adjacent in images with channels last.
    let adjacent = builder.device().image_layout.adjacent_channels(sample);
    let length = match rule {
        Scale::Channels if adjacent == 1 => sample.elements() / count,
        Scale::Channels => 1,
        Scale::Constant(_) | Scale::Features => adjacent,
    };
    let sizes = [elements, count, length].map(size);
    let constant = Argument::F32(if let Scale::Constant(factor) = rule { *factor as f32 } else { 1.0 });
    let [x, dy] = [Role::Input(0), Role::OutputGradient].map(|role| builder.operand(role));
    let is_backward = pass.is_backward();
    let [from, to] = if is_backward {
        [dy, builder.operand(Role::InputGradient(0))]
    } else {
        [x, builder.operand(Role::Output)]
    };
    if pass != Pass::BackwardParameters {
        let arguments = [&sizes[..], &[constant, builder.operand(Role::Parameters), from, to]].concat();
        builder.for_each((Family::Activation, "scale_rows"), elements, arguments)?;
    }
    if is_backward && !matches!(rule, Scale::Constant(_)) {
        let arguments = [&sizes[..], &[x, dy, builder.operand(Role::ParameterGradient)]].concat();
        builder.launch((Family::Activation, "scale_gradient"), [count, 1], arguments)?;
    }
    Ok(())
}

/// Adds the launch of a pass of a softmax over rows of `classes` elements. `elements` is the number
/// of elements of all samples together.
pub(super) fn softmax(
    builder: &mut KernelBuilder<'_>,
    classes: usize,
    elements: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let rows = elements / classes;
    let y = builder.operand(Role::Output);
    if !backward {
        let arguments = [size(rows), size(classes), builder.operand(Role::Input(0)), y];
        return builder.for_each_row((Family::Activation, "softmax_forward"), rows, arguments);
    }
    let (dy, dx) = (builder.operand(Role::OutputGradient), builder.operand(Role::InputGradient(0)));
    builder.for_each_row(
        (Family::Activation, "softmax_backward"),
        rows,
        [size(rows), size(classes), y, dy, dx],
    )
}

/// Place of the elements of a sample of a dropout in a sample of the whole layer: `count` ranges of
/// `length` elements, which begin `stride` elements apart.
struct Ranges {
    count: usize,
    first: usize,
    length: usize,
    stride: usize,
}

impl Ranges {
    /// Returns the ranges of a layer, or `None` if they have different lengths or distances, or are
    /// too far apart for indices of 32 bits.
    fn of(layer: &Layer) -> Option<Self> {
        let runs = layer.random_box().runs();
        let (first, length) = runs.first().map(|run| (run.start, run.len()))?;
        let stride = runs.get(1).map_or(length, |next| next.start - first);
        let is_regular = runs.iter().enumerate().all(|(index, run)| {
            run.len() == length && run.start == first + index * stride && run.end <= MAX_ELEMENTS
        });
        is_regular.then_some(Self { count: runs.len(), first, length, stride })
    }

    /// Returns the maximum number of blocks of eight numbers that a range shares elements with.
    fn blocks(&self) -> usize {
        if self.count == 1 && self.first == 0 { self.length.div_ceil(8) } else { (self.length + 14) / 8 }
    }
}

/// Returns the arguments by which a kernel draws the random numbers of a layer and compares them
/// with a probability: the first sample, the purpose and the name of the numbers, and the
/// probability.
pub(super) fn draws(layer: &Layer, shard: Shard, probability: f64) -> [Argument; 4] {
    [
        Argument::U64(shard.first as u64),
        Argument::U64(Purpose::Dropout as u64),
        Argument::U64(RandomStream::name_key(layer.name())),
        Argument::F64(probability),
    ]
}

/// Adds the launch of a training pass of a dropout, in either direction. The name of the layer is
/// part of the key of its random numbers.
pub(super) fn dropout(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &Dropout,
    shard: Shard,
    backward: bool,
) -> Result<(), EngineError> {
    let elements = layer.output_shape().elements();
    let [from, to] = if backward {
        [Role::OutputGradient, Role::InputGradient(0)]
    } else {
        [Role::Input(0), Role::Output]
    };
    let Some(ranges) = Ranges::of(layer) else {
        let pass = if backward { Pass::Backward } else { Pass::Forward };
        return Err(EngineError::unsupported(NAME, layer, pass));
    };
    let [first_sample, purpose, name, probability] = draws(layer, shard, rule.probability);
    let arguments = [
        size(shard.samples),
        size(elements),
        size(ranges.first),
        size(ranges.length),
        size(ranges.stride),
        size(ranges.blocks()),
        size(builder.device().image_layout.adjacent_channels(layer.output_shape())),
        first_sample,
        purpose,
        name,
        probability,
        Argument::F32((1.0 / (1.0 - rule.probability)) as f32),
        size(usize::from(rule.of_samples)),
        Argument::Context,
        builder.operand(from),
        builder.operand(to),
    ];
    // Each thread generates eight numbers.
    let threads = shard.samples * ranges.count * ranges.blocks();
    builder.for_each((Family::Dropout, "dropout"), threads, arguments)
}

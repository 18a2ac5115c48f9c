//! Activations, softmax and dropout. Each function adds the launches of a pass to a plan (a kernel
//! under preparation). It fails if a GPU function cannot be loaded.

use layer_graph::LayerKind;

use super::kernel::Argument;
use super::module::Family;
use super::plan::{Plan, size};
use crate::random::{Purpose, RandomStream};
use crate::{EngineError, Role, Shard};

/// Plans a pass of a rectifier (`ReLU`) or of a Gaussian error linear unit over `elements`
/// elements of all samples.
pub(super) fn elementwise(
    plan: &mut Plan<'_>,
    kind: &LayerKind,
    elements: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let [forward, derivative] = match kind {
        LayerKind::Relu => ["relu_forward", "relu_backward"],
        LayerKind::Gelu => ["gelu_forward", "gelu_backward"],
        _ => ["gelu_tanh_forward", "gelu_tanh_backward"],
    };
    if !backward {
        let arguments = [size(elements), plan.operand(Role::Input(0)), plan.operand(Role::Output)];
        return plan.for_each((Family::Activation, forward), elements, arguments);
    }
    let from = if matches!(kind, LayerKind::Relu) { Role::Output } else { Role::Input(0) };
    let (dy, dx) = (plan.operand(Role::OutputGradient), plan.operand(Role::InputGradient(0)));
    plan.for_each((Family::Activation, derivative), elements, [size(elements), plan.operand(from), dy, dx])
}

/// Plans a pass of a softmax over the rows of `classes` elements that `elements` elements of all
/// samples consist of.
pub(super) fn softmax(
    plan: &mut Plan<'_>,
    classes: usize,
    elements: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let rows = elements / classes;
    let y = plan.operand(Role::Output);
    if !backward {
        let arguments = [size(rows), size(classes), plan.operand(Role::Input(0)), y];
        return plan.for_each_row((Family::Activation, "softmax_forward"), rows, arguments);
    }
    let (dy, dx) = (plan.operand(Role::OutputGradient), plan.operand(Role::InputGradient(0)));
    plan.for_each_row((Family::Activation, "softmax_backward"), rows, [size(rows), size(classes), y, dy, dx])
}

/// Plans a training pass of a dropout. `layer` is the name of the layer, part of the key of its
/// random numbers; an element becomes zero with `probability`; `elements` is the number of elements
/// of a sample.
pub(super) fn dropout(
    plan: &mut Plan<'_>,
    layer: &str,
    probability: f64,
    shard: Shard,
    elements: usize,
    backward: bool,
) -> Result<(), EngineError> {
    let saved = plan.operand(Role::Saved);
    if backward {
        let all = shard.samples * elements;
        let (dy, dx) = (plan.operand(Role::OutputGradient), plan.operand(Role::InputGradient(0)));
        return plan.for_each((Family::Dropout, "dropout_backward"), all, [size(all), saved, dy, dx]);
    }
    let arguments = [
        size(shard.samples),
        size(elements),
        Argument::U64(shard.first as u64),
        Argument::U64(Purpose::Dropout as u64),
        Argument::U64(RandomStream::name_key(layer)),
        Argument::F64(probability),
        Argument::F32((1.0 / (1.0 - probability)) as f32),
        Argument::Context,
        plan.operand(Role::Input(0)),
        plan.operand(Role::Output),
        saved,
    ];
    // Each thread generates eight numbers.
    let threads = shard.samples * elements.div_ceil(8);
    plan.for_each((Family::Dropout, "dropout_forward"), threads, arguments)
}

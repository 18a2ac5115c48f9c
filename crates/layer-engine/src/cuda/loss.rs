//! Losses. The functions add the launches of a pass to a `KernelBuilder`, a kernel under
//! preparation. They fail as the functions of `KernelBuilder` do.

use layer_graph::{ElementwiseLoss, Layer, SoftmaxCrossEntropy};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, Pass, Role, Storage};

const FAMILY: Family = Family::Loss;

/// Adds the launches of a pass of softmax and cross entropy over `samples` samples.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &SoftmaxCrossEntropy,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    let (positions, classes) = (layer.label_count(), layer.input_shapes()[0].innermost());
    let mean_positions = size(layer.mean_positions());
    let rows = samples * positions;
    let smoothing = Argument::F32(rule.label_smoothing as f32);
    let values = builder.operand(Role::Labels);
    let has_weights = Argument::U32(rule.ignored_label.is_some().into());
    let ignored = Argument::F32(rule.ignored_label.unwrap_or_default() as f32);
    let [saved, gradient] = match pass {
        Pass::ForwardInPlace | Pass::BackwardInPlace => [Role::Input(0); 2],
        _ => [Role::Saved, Role::InputGradient(0)],
    };
    let saved = builder.operand(saved);
    let in_place = matches!(pass, Pass::ForwardInPlace | Pass::BackwardInPlace);
    // In 16 bits the scores remain, and the backward pass computes the probabilities again.
    let keeps_scores = in_place && builder.storage(saved) == Storage::Bf16;
    if keeps_scores && pass == Pass::BackwardInPlace {
        let dy = builder.operand(Role::OutputGradient);
        let sizes = [size(rows), size(classes), size(positions), mean_positions, smoothing];
        let arguments = [&sizes[..], &[saved, values, has_weights, ignored, dy]].concat();
        return builder.for_each_row((FAMILY, "cross_entropy_backward_in_place"), rows, arguments);
    }
    if matches!(pass, Pass::Backward | Pass::BackwardInPlace) {
        let (dy, dx) = (builder.operand(Role::OutputGradient), builder.operand(gradient));
        let sizes = [size(rows), size(classes), size(positions), mean_positions, smoothing];
        let arguments = [&sizes[..], &[saved, values, has_weights, ignored, dy, dx]].concat();
        return builder.for_each((FAMILY, "cross_entropy_backward"), rows * classes, arguments);
    }
    let bytes = rows * size_of::<f64>();
    let [losses, right] = [builder.workspace(bytes)?, builder.workspace(bytes)?];
    let scores = builder.operand(Role::Input(0));
    let saved = if keeps_scores { Argument::NONE } else { saved };
    let labels = [values, size(positions), has_weights, ignored];
    let scores = [size(rows), size(classes), smoothing, scores];
    let arguments = [&scores[..], &labels, &[saved, losses, right]].concat();
    builder.for_each_row((FAMILY, "cross_entropy_positions"), rows, arguments)?;
    let sizes = [size(samples), size(positions), losses, right];
    let output = builder.operand(Role::Output);
    let arguments = [&sizes[..], &[mean_positions, has_weights, values, output]].concat();
    builder.for_each_row((FAMILY, "cross_entropy_samples"), samples, arguments)?;
    let arguments = [&sizes[..], &[builder.operand(Role::Metrics)]].concat();
    builder.launch((FAMILY, "cross_entropy_metrics"), [1, 1], arguments)
}

/// Adds the launches of a pass of a loss of each element over `samples` samples.
pub(super) fn add_elementwise(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    loss: ElementwiseLoss,
    samples: usize,
    pass: Pass,
) -> Result<(), EngineError> {
    let elements = layer.label_count();
    let kind = match loss {
        ElementwiseLoss::MeanSquaredError => 0,
        ElementwiseLoss::BinaryCrossEntropy => 1,
    };
    let [x, labels] = [Role::Input(0), Role::Labels].map(|role| builder.operand(role));
    let operands = [size(elements), Argument::U32(kind), x, labels];
    if pass.is_backward() {
        let [dy, dx] = [Role::OutputGradient, Role::InputGradient(0)].map(|role| builder.operand(role));
        let all = samples * elements;
        let arguments = [&[size(all)], &operands[..], &[dy, dx]].concat();
        return builder.for_each((FAMILY, "elementwise_loss_backward"), all, arguments);
    }
    let bytes = samples * size_of::<f64>();
    let [losses, right] = [builder.workspace(bytes)?, builder.workspace(bytes)?];
    let y = builder.operand(Role::Output);
    let arguments = [&[size(samples)], &operands[..], &[losses, right, y]].concat();
    builder.for_each_row((FAMILY, "elementwise_loss_samples"), samples, arguments)?;
    let arguments = vec![size(samples), size(1), losses, right, builder.operand(Role::Metrics)];
    builder.launch((FAMILY, "cross_entropy_metrics"), [1, 1], arguments)
}

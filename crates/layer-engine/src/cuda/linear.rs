//! Linear layers, and the sums of sliced gradients. Each function adds launches to a plan (a kernel
//! under preparation). It fails if memory cannot be allocated or a GPU function cannot be loaded.
//!
//! A gradient of weights is a sum over samples. If its tiles are too few to occupy the device, the
//! terms are divided into *slices*: each slice is summed by blocks of its own, and a last launch
//! adds the slices.

use super::kernel::Argument;
use super::module::Family;
use super::plan::{Plan, size, slices, tiles};
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::MatrixProduct;

/// Plans a pass of a linear layer with `samples` rows of `inputs` features, of which it computes
/// `outputs` features. `bias` is whether it has biases.
pub(super) fn plan(
    plan: &mut Plan<'_>,
    [samples, outputs, inputs]: [usize; 3],
    bias: bool,
    pass: Pass,
) -> Result<(), EngineError> {
    let sizes = [size(samples), size(outputs), size(inputs)];
    let [rows, columns, depth] = sizes;
    let weights = plan.operand(Role::Parameters);
    let after_weights =
        |operand: Argument| if bias { operand.offset(outputs * inputs) } else { Argument::NONE };
    let (x, dy) = (plan.operand(Role::Input(0)), plan.operand(Role::OutputGradient));
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let arguments =
            [rows, columns, depth, x, weights, after_weights(weights), plan.operand(Role::Output)];
        return plan.launch((FAMILY, "linear_forward"), [tiles(samples, outputs), 1], arguments);
    }
    if pass == Pass::Backward {
        let arguments = [rows, columns, depth, dy, weights, plan.operand(Role::InputGradient(0))];
        plan.launch((FAMILY, "linear_input_gradient"), [tiles(samples, inputs), 1], arguments)?;
    }
    let gradient = plan.operand(Role::ParameterGradient);
    let tiles = tiles(outputs, inputs);
    let (count, slice) = slices(samples, tiles);
    let to = slice_target(plan, count, outputs * inputs, gradient)?;
    let arguments = [rows, columns, depth, size(slice), x, dy, to];
    plan.launch((FAMILY, "linear_weight_gradient"), [tiles, count], arguments)?;
    sum_slices(plan, count, outputs * inputs, to, gradient)?;
    if bias {
        let arguments = [rows, columns, dy, after_weights(gradient)];
        plan.launch((FAMILY, "linear_bias_gradient"), [outputs.div_ceil(32), 1], arguments)?;
    }
    Ok(())
}

/// Returns the memory for the slices of a gradient of `elements` elements, one after another: the
/// gradient itself if there is one slice, else new workspace.
///
/// # Errors
/// See `Plan::workspace`.
pub(super) fn slice_target(
    plan: &mut Plan<'_>,
    slices: usize,
    elements: usize,
    gradient: Argument,
) -> Result<Argument, EngineError> {
    if slices == 1 { Ok(gradient) } else { plan.workspace(slices * elements * size_of::<f32>()) }
}

/// Plans the sum of `slices` slices of `elements` elements, from `parts` to `gradient`. Plans
/// nothing for one slice, which is the gradient.
pub(super) fn sum_slices(
    plan: &mut Plan<'_>,
    slices: usize,
    elements: usize,
    parts: Argument,
    gradient: Argument,
) -> Result<(), EngineError> {
    if slices == 1 {
        return Ok(());
    }
    plan.for_each((FAMILY, "sum_slices"), elements, [size(elements), size(slices), parts, gradient])
}

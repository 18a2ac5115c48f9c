//! Linear layers, and the sums of sliced gradients. Each function adds launches to a
//! `KernelBuilder`, a kernel under preparation. It fails as the functions of `KernelBuilder` do.
//!
//! A gradient of weights is a sum over samples. If its tiles are too few to occupy the device, the
//! terms are divided into *slices*: each slice is summed by other blocks, and a last launch adds
//! the slices.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size, slices, tiles};
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::MatrixProduct;

/// Adds the launches of a pass of a linear layer with `samples` rows of `inputs` features, of which
/// it computes `outputs` features. `bias` is whether it has biases.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    [samples, outputs, inputs]: [usize; 3],
    bias: bool,
    pass: Pass,
) -> Result<(), EngineError> {
    let sizes = [size(samples), size(outputs), size(inputs)];
    let [rows, columns, depth] = sizes;
    let weights = builder.operand(Role::Parameters);
    let after_weights =
        |operand: Argument| if bias { operand.offset(outputs * inputs) } else { Argument::NONE };
    let (x, dy) = (builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient));
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let arguments =
            [rows, columns, depth, x, weights, after_weights(weights), builder.operand(Role::Output)];
        return builder.launch((FAMILY, "linear_forward"), [tiles(samples, outputs), 1], arguments);
    }
    if pass == Pass::Backward {
        let arguments = [rows, columns, depth, dy, weights, builder.operand(Role::InputGradient(0))];
        builder.launch((FAMILY, "linear_input_gradient"), [tiles(samples, inputs), 1], arguments)?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let tiles = tiles(outputs, inputs);
    let (count, slice) = slices(samples, tiles);
    let to = slice_target(builder, count, outputs * inputs, gradient)?;
    let arguments = [rows, columns, depth, size(slice), x, dy, to];
    builder.launch((FAMILY, "linear_weight_gradient"), [tiles, count], arguments)?;
    sum_slices(builder, count, outputs * inputs, to, gradient)?;
    if bias {
        let arguments = [rows, columns, dy, after_weights(gradient)];
        builder.launch((FAMILY, "linear_bias_gradient"), [outputs.div_ceil(32), 1], arguments)?;
    }
    Ok(())
}

/// Returns the memory for the slices of a gradient of `elements` elements, one after another: the
/// gradient itself if there is one slice, else new workspace.
///
/// # Errors
/// See `KernelBuilder::workspace`.
pub(super) fn slice_target(
    builder: &mut KernelBuilder<'_>,
    slices: usize,
    elements: usize,
    gradient: Argument,
) -> Result<Argument, EngineError> {
    if slices == 1 { Ok(gradient) } else { builder.workspace(slices * elements * size_of::<f32>()) }
}

/// Adds the launch that sums `slices` slices of `elements` elements each, from `parts` into
/// `gradient`. Adds nothing if there is one slice, which is the gradient itself.
pub(super) fn sum_slices(
    builder: &mut KernelBuilder<'_>,
    slices: usize,
    elements: usize,
    parts: Argument,
    gradient: Argument,
) -> Result<(), EngineError> {
    if slices == 1 {
        return Ok(());
    }
    builder.for_each((FAMILY, "sum_slices"), elements, [size(elements), size(slices), parts, gradient])
}

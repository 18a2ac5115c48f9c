//! Linear layers. The function adds launches to a `KernelBuilder`, a kernel under preparation. It
//! fails as the functions of `KernelBuilder` do.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size, tiles};
use super::module::Family;
use super::slices::Slices;
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
    let sizes = [samples, outputs, inputs].map(size);
    let weights = builder.operand(Role::Parameters);
    let after_weights =
        |operand: Argument| if bias { operand.offset(outputs * inputs) } else { Argument::NONE };
    let (x, dy) = (builder.operand(Role::Input(0)), builder.operand(Role::OutputGradient));
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let (tiles, biases) = (tiles(samples, outputs), after_weights(weights));
        let y = builder.operand(Role::Output);
        let y = Slices::new(builder, (y, samples * outputs), inputs, tiles)?;
        let arguments = [&sizes[..], &[size(y.terms), x, weights, y.bias(biases), y.parts]].concat();
        builder.launch((FAMILY, "linear_forward"), [tiles, y.count], arguments)?;
        return y.sum(builder, biases, [1, outputs]);
    }
    if pass == Pass::Backward {
        let tiles = tiles(samples, inputs);
        let dx = builder.operand(Role::InputGradient(0));
        let dx = Slices::new(builder, (dx, samples * inputs), outputs, tiles)?;
        let arguments = [&sizes[..], &[size(dx.terms), dy, weights, dx.parts]].concat();
        builder.launch((FAMILY, "linear_input_gradient"), [tiles, dx.count], arguments)?;
        dx.sum(builder, Argument::NONE, [1, inputs])?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let tiles = tiles(outputs, inputs);
    let dw = Slices::new(builder, (gradient, outputs * inputs), samples, tiles)?;
    let arguments = [&sizes[..], &[size(dw.terms), x, dy, dw.parts]].concat();
    builder.launch((FAMILY, "linear_weight_gradient"), [tiles, dw.count], arguments)?;
    dw.sum(builder, Argument::NONE, [1, inputs])?;
    if bias {
        let arguments = [sizes[0], sizes[1], dy, after_weights(gradient)];
        builder.launch((FAMILY, "linear_bias_gradient"), [outputs.div_ceil(32), 1], arguments)?;
    }
    Ok(())
}

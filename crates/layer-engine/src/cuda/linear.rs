//! Linear layers. The function adds launches to a `KernelBuilder`, a kernel under preparation. It
//! fails as the functions of `KernelBuilder` do.

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use super::slices::{Products, Slices};
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
    let product = |to, [rows, columns, terms]: [usize; 3]| {
        let (elements, factors) = (rows * columns, (rows + columns) * terms);
        Products { to, elements, factors, sides: [rows, columns], count: 1, terms }
    };
    if !matches!(pass, Pass::Backward | Pass::BackwardParameters) {
        let biases = after_weights(weights);
        let y = product(builder.operand(Role::Output), [samples, outputs, inputs]);
        let y = Slices::new(builder, &y)?;
        let arguments = [&sizes[..], &[size(y.terms), x, weights, y.bias(biases), y.parts]].concat();
        y.launch(builder, (FAMILY, ["linear_forward", "linear_forward_small"]), arguments)?;
        return y.sum(builder, biases, [1, outputs]);
    }
    if pass == Pass::Backward {
        let dx = product(builder.operand(Role::InputGradient(0)), [samples, inputs, outputs]);
        let dx = Slices::new(builder, &dx)?;
        let arguments = [&sizes[..], &[size(dx.terms), dy, weights, dx.parts]].concat();
        dx.launch(builder, (FAMILY, ["linear_input_gradient", "linear_input_gradient_small"]), arguments)?;
        dx.sum(builder, Argument::NONE, [1, inputs])?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let dw = Slices::new(builder, &product(gradient, [outputs, inputs, samples]))?;
    let arguments = [&sizes[..], &[size(dw.terms), x, dy, dw.parts]].concat();
    dw.launch(builder, (FAMILY, ["linear_weight_gradient", "linear_weight_gradient_small"]), arguments)?;
    dw.sum(builder, Argument::NONE, [1, inputs])?;
    if bias {
        let arguments = [sizes[0], sizes[1], dy, after_weights(gradient)];
        builder.launch((FAMILY, "linear_bias_gradient"), [outputs.div_ceil(32), 1], arguments)?;
    }
    Ok(())
}

//! Recurrences of LSTMs and GRUs. The function adds the launches of a pass to a `KernelBuilder`, a
//! kernel under preparation. It fails as the functions of `KernelBuilder` do.

use layer_graph::{Recurrence, RecurrenceSizes, RecurrentCell, Shape};

use super::kernel::Argument;
use super::kernel_builder::KernelBuilder;
use super::linear::{bias_gradient, weight_gradient};
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::Recurrence;

/// Number of samples of a block, as in `kernels/recurrence.cu`.
const SAMPLES: usize = 4;

/// Adds the launches of a pass of a recurrence over `samples` samples of shape `input`. Returns
/// `None` if the input does not fit.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    input: &Shape,
    rule: &Recurrence,
    samples: usize,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some(RecurrenceSizes { positions, gates, width }) = rule.sizes(input) else { return Ok(None) };
    let (rows, inputs) = (samples * positions, gates * width);
    let after_weight =
        |operand: Argument| if rule.bias { operand.offset(inputs * width) } else { Argument::NONE };
    let grid = [samples.div_ceil(SAMPLES), 1];
    // Blocks read and write workspace of samples beyond the last one.
    let padded = samples.next_multiple_of(SAMPLES);
    let [weight, y, saved] = [Role::Parameters, Role::Output, Role::Saved].map(|role| builder.operand(role));
    if !pass.is_backward() {
        let x = builder.operand(Role::Input(0));
        let (kept, slots) = match saved {
            Argument::Write(..) => (saved, positions),
            _ => (builder.workspace(samples * rule.cell.saved() * width * size_of::<f32>())?, 1),
        };
        // Fields of `Sizes` in `kernels/recurrence.cu`.
        let sizes = Argument::fields([samples, positions, width, slots, usize::from(rule.reversed)]);
        let function = match rule.cell {
            RecurrentCell::Lstm => "lstm_forward",
            RecurrentCell::Gru => "gru_forward",
        };
        let states = builder.workspace(padded * 2 * width * size_of::<f32>())?;
        let arguments = [sizes, x, weight, after_weight(weight), y, kept, states];
        return builder.launch((FAMILY, function), grid, arguments).map(Some);
    }
    let dy = builder.operand(Role::OutputGradient);
    let dx = if pass == Pass::Backward {
        builder.operand(Role::InputGradient(0))
    } else {
        builder.workspace(rows * inputs * size_of::<f32>())?
    };
    let [products, before, carried] = [padded * positions * inputs, rows * width, padded * 2 * width]
        .map(|elements| builder.workspace(elements * size_of::<f32>()));
    let [products, before, carried] = [products?, before?, carried?];
    let sizes = Argument::fields([samples, positions, width, positions, usize::from(rule.reversed)]);
    let function = match rule.cell {
        RecurrentCell::Lstm => "lstm_gradient",
        RecurrentCell::Gru => "gru_gradient",
    };
    let arguments = [sizes, weight, y, saved, dy, dx, products, before, carried];
    builder.launch((FAMILY, function), grid, arguments)?;
    let gradient = builder.operand(Role::ParameterGradient);
    weight_gradient(builder, [rows, inputs, width], [before, products], gradient)?;
    if rule.bias {
        bias_gradient(builder, [rows, inputs], products, after_weight(gradient))?;
    }
    Ok(Some(()))
}

//! Additive attention. The function adds the launches of a pass to a `KernelBuilder`, a kernel
//! under preparation. It fails as the functions of `KernelBuilder` do.

use layer_graph::{AdditiveAttention, AdditiveSizes, Layer};

use super::kernel::Argument;
use super::kernel_builder::{KernelBuilder, size};
use super::module::Family;
use crate::{EngineError, Pass, Role};

const FAMILY: Family = Family::AdditiveAttention;

/// Adds the launches of a pass of an additive attention over `samples` samples. Returns `None` if
/// its inputs do not fit.
///
/// The workspace of the forward pass has an element for each unit, and in evaluation one for each
/// weight; that of the backward pass has one for each weight and two for each unit of each query.
pub(super) fn add_launches(
    builder: &mut KernelBuilder<'_>,
    layer: &Layer,
    rule: &AdditiveAttention,
    samples: usize,
    pass: Pass,
) -> Result<Option<()>, EngineError> {
    let Some(sizes) = rule.sizes(layer.input_shapes()) else { return Ok(None) };
    let AdditiveSizes { positions, key_positions, units, features } = sizes;
    let (rows, weights) = (samples * positions, samples * sizes.weights());
    let floats = |elements: usize| elements * size_of::<f32>();
    let parameters = builder.operand(Role::Parameters);
    let bias = if rule.normalised { parameters.offset(units + 1) } else { Argument::NONE };
    let vector = builder.workspace(floats(units))?;
    let arguments = [size(units), Argument::U32(rule.normalised.into()), parameters, vector];
    builder.launch((FAMILY, "additive_vector"), [1, 1], arguments)?;
    // Fields of `Sizes` in `kernels/additive_attention.cu`.
    let fields = Argument::fields([positions, key_positions, units, features]);
    let [queries, keys, values] = [0, 1, 2].map(|slot| builder.operand(Role::Input(slot)));
    let inputs = [fields, queries, keys, values, vector, bias];
    let saved = builder.operand(Role::Saved);
    if !pass.is_backward() {
        let kept = match saved {
            Argument::Write(..) => saved,
            _ => builder.workspace(floats(weights))?,
        };
        let arguments = [&inputs[..], &[builder.operand(Role::Output), kept]].concat();
        return builder.launch((FAMILY, "additive_forward"), [rows, 1], arguments).map(Some);
    }
    let dy = builder.operand(Role::OutputGradient);
    let slopes = builder.workspace(floats(weights))?;
    builder.launch((FAMILY, "additive_slopes"), [rows, 1], [fields, values, saved, dy, slopes])?;
    let [of_units, of_vector] = [(); 2].map(|()| builder.workspace(floats(rows * units)));
    let [of_units, of_vector] = [of_units?, of_vector?];
    let of_inputs =
        (pass == Pass::Backward).then(|| [0, 1, 2].map(|slot| builder.operand(Role::InputGradient(slot))));
    let dq = of_inputs.map_or(Argument::NONE, |[dq, ..]| dq);
    let arguments = [&inputs[..], &[slopes, dq, of_units, of_vector]].concat();
    builder.launch((FAMILY, "additive_query_gradient"), [rows, 1], arguments)?;
    if let Some([_, dk, dv]) = of_inputs {
        let arguments = [&inputs[..], &[saved, slopes, dy, dk, dv]].concat();
        builder.launch((FAMILY, "additive_key_value_gradient"), [samples * key_positions, 1], arguments)?;
    }
    let gradient = builder.operand(Role::ParameterGradient);
    let mut sum = |gradients: Argument, result: Argument| {
        let arguments = [size(rows), size(units), gradients, result];
        builder.launch((FAMILY, "additive_sums"), [units.div_ceil(32), 1], arguments)
    };
    sum(of_vector, gradient)?;
    if rule.normalised {
        sum(of_units, gradient.offset(units + 1))?;
        let arguments = [size(units), parameters, gradient];
        builder.launch((FAMILY, "additive_vector_gradient"), [1, 1], arguments)?;
    }
    Ok(Some(()))
}

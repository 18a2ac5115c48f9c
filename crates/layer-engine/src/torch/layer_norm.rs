//! Layer normalisation over vectors of `features` elements, the innermost dimension. Functions
//! return the computation of a pass.

use layer_graph::LayerNorm;
use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::ffi::layer_norm_backward;
use super::launch::{LaunchFunction, LayerOperands};
use super::library_error;
use crate::Role;

/// Returns the forward pass, which saves the mean and `1 / sqrt(variance + epsilon)` of each vector
/// in training.
pub(super) fn forward(operands: LayerOperands, norm: &LayerNorm, features: i64) -> LaunchFunction {
    let epsilon = norm.epsilon;
    Box::new(move |launch| {
        let parameters = operands.parameters(launch)?;
        let (weight, bias) = (parameters.first(), parameters.get(1));
        let (output, mean, inverse) =
            operands.input(launch)?.f_native_layer_norm([features], weight, bias, epsilon)?;
        operands.put(launch, Role::Output, &output)?;
        operands.save(launch, vec![mean, inverse])
    })
}

/// Returns the backward pass. It computes the input gradient only if the pass has that operand.
///
/// # Errors
/// If libtorch cannot allocate a constant of the computation.
pub(super) fn backward(
    operands: LayerOperands,
    features: i64,
    dtypes: DTypes,
) -> Result<LaunchFunction, Failure> {
    let wants_input = operands.writes(Role::InputGradient(0));
    // The gradients of the parameters do not depend on the parameters, which are not operands in
    // this pass.
    let placeholder = Tensor::f_ones([features], (dtypes.kind, dtypes.device))?;
    Ok(Box::new(move |launch| {
        let missing = || library_error("libtorch returned no gradient of a layer normalisation");
        let [mean, inverse] = operands.saved(launch)?;
        let parameters = if wants_input {
            operands.parameters(launch)?
        } else {
            vec![placeholder.shallow_clone(), placeholder.shallow_clone()]
        };
        let [input, weight, bias] = layer_norm_backward(
            &operands.output_gradient(launch)?,
            &operands.input(launch)?,
            [mean, inverse],
            [&parameters[0], &parameters[1]],
            [wants_input, true, true],
        )?;
        let gradients = [weight.ok_or_else(missing)?, bias.ok_or_else(missing)?];
        operands.put_parameter_gradients(launch, &gradients)?;
        if wants_input {
            operands.put(launch, Role::InputGradient(0), &input.ok_or_else(missing)?)?;
        }
        Ok(())
    }))
}

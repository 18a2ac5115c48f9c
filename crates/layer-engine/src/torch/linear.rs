//! Linear layers. Each position of a sequence counts as a sample. Functions return the computation
//! of a pass.

use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Reshapes a tensor to rows of features: positions count as samples.
fn rows(tensor: &Tensor) -> Result<Tensor, Failure> {
    let features = tensor.size().last().copied().unwrap_or(1);
    Ok(tensor.f_reshape([-1, features])?)
}

/// Returns the forward pass.
pub(super) fn forward(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let parameters = operands.parameters(launch)?;
        let input = dtypes.narrow(&rows(&operands.input(launch)?)?)?;
        let weight = dtypes.narrow(&parameters[0])?.f_tr()?;
        let bias = parameters.get(1);
        if dtypes.converts() {
            let mut output = dtypes.widen(&input.f_mm(&weight)?)?;
            if let Some(bias) = bias {
                output = output.f_add_(bias)?;
            }
            return operands.put(launch, Role::Output, &output);
        }
        // Written directly into the output.
        let output = rows(&operands.target(launch, Role::Output)?.flat()?.f_view(&operands.output[..])?)?;
        let _ = match bias {
            Some(bias) => bias.f_addmm_out(&output, &input, &weight)?,
            None => input.f_mm_out(&output, &weight)?,
        };
        Ok(())
    })
}

/// Returns the backward pass. It computes the input gradient only if the pass has that operand.
pub(super) fn backward(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let output_gradient = rows(&operands.output_gradient(launch)?)?;
        let narrow = dtypes.narrow(&output_gradient)?;
        let input = dtypes.narrow(&rows(&operands.input(launch)?)?)?;
        let mut gradients = operands.parameter_gradients(launch)?;
        product(&narrow.f_tr()?, &input, &mut gradients[0], dtypes)?;
        if let Some(bias) = gradients.get_mut(1) {
            bias.f_copy_(&output_gradient.f_sum_dim_intlist([0i64].as_slice(), false, None)?)?;
        }
        if operands.writes(Role::InputGradient(0)) {
            let weight = dtypes.narrow(&operands.parameters(launch)?[0])?;
            let flat = operands.target(launch, Role::InputGradient(0))?.flat()?;
            let mut target = flat.f_view(input.size().as_slice())?;
            product(&narrow, &weight, &mut target, dtypes)?;
        }
        Ok(())
    })
}

/// Overwrites `target` with a product.
fn product(left: &Tensor, right: &Tensor, target: &mut Tensor, dtypes: DTypes) -> Result<(), Failure> {
    if dtypes.converts() {
        target.f_copy_(&left.f_mm(right)?)?;
    } else {
        let _ = left.f_mm_out(target, right)?;
    }
    Ok(())
}

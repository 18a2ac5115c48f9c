//! Layers that libtorch's autograd differentiates, on the graph that the forward pass saves.
//! Functions return the computation of a pass.

use tch::{Tensor, with_grad};

use super::Failure;
use super::ffi;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass. `outputs` computes the outputs from the inputs and the parameters, in
/// this order. In training the pass saves libtorch's autograd graph.
pub(super) fn forward(
    operands: LayerOperands,
    outputs: impl Fn(&[Tensor]) -> Result<Tensor, Failure> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let inputs = (0..operands.inputs.len()).map(|slot| operands.input_at(launch, slot));
        let mut leaves = inputs.collect::<Result<Vec<_>, _>>()?;
        leaves.append(&mut operands.parameters(launch)?);
        let is_training = operands.writes(Role::Saved);
        for leaf in &mut leaves {
            *leaf = leaf.f_detach()?.f_set_requires_grad(is_training)?;
        }
        let compute = || outputs(&leaves);
        let result = if is_training { with_grad(compute)? } else { compute()? };
        operands.put(launch, Role::Output, &result.f_detach()?)?;
        leaves.push(result);
        operands.save(launch, leaves)
    })
}

/// Returns the backward pass. It computes the gradients of those inputs that it has as operands,
/// and of the parameters.
pub(super) fn backward(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let inputs = operands.inputs.len();
        let (result, leaves) = operands.saved_after(launch, inputs + operands.parameter_count())?;
        let output_gradient = operands.output_gradient(launch)?;
        let gradients = ffi::gradients_of_leaves(result, leaves, &output_gradient)?;
        let (of_inputs, of_parameters) = gradients.split_at(inputs);
        for (slot, gradient) in of_inputs.iter().enumerate() {
            if operands.writes(Role::InputGradient(slot)) {
                operands.put(launch, Role::InputGradient(slot), gradient)?;
            }
        }
        operands.put_parameter_gradients(launch, of_parameters)
    })
}

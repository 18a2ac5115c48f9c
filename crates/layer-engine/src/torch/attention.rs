//! Scaled dot-product attention. Functions return the computation of a pass.

use layer_graph::{Layer, MultiHeadAttention};

use super::dropout::Mask;
use super::dtypes::DTypes;
use super::ffi::{self, AttentionOptions};
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass of attention, by libtorch's fastest kernel for the device, or with a
/// mask of the weights by matrix products. In training it saves libtorch's autograd graph, by which
/// the backward pass differentiates. Returns `None` if the layer's inputs do not fit.
pub(super) fn forward(
    operands: LayerOperands,
    layer: &Layer,
    attention: &MultiHeadAttention,
    mut mask: Option<Mask>,
    dtypes: DTypes,
) -> Option<LaunchFunction> {
    let width = attention.sizes(layer.input_shapes())?.width;
    let (heads, causal) = (attention.heads as i64, attention.causal);
    let options = AttentionOptions { heads, causal, scale: attention.scale_for(width) };
    Some(Box::new(move |launch| {
        let inputs = (0..operands.inputs.len()).map(|slot| dtypes.narrow(&operands.input_at(launch, slot)?));
        let inputs = inputs.collect::<Result<Vec<_>, _>>()?;
        let factors = mask.as_mut().map(|mask| mask.factors(launch, dtypes)).transpose()?;
        let (mut saved, result) = ffi::attention(&inputs, options, factors, operands.writes(Role::Saved))?;
        operands.put(launch, Role::Output, &dtypes.widen(&result.f_detach()?)?)?;
        saved.push(result);
        operands.save(launch, saved)
    }))
}

/// Returns the backward pass of attention: libtorch's autograd, on the graph that the forward pass
/// saved.
pub(super) fn backward(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let (result, leaves) = operands.saved_after(launch, operands.inputs.len())?;
        let output_gradient = dtypes.narrow(&operands.output_gradient(launch)?)?;
        let gradients = ffi::gradients_of_leaves(result, leaves, &output_gradient)?;
        gradients.iter().enumerate().try_for_each(|(slot, gradient)| {
            operands.put(launch, Role::InputGradient(slot), &dtypes.widen(gradient)?)
        })
    })
}

//! Scaled dot-product attention. Functions return the computation of a pass.

use layer_graph::MultiHeadAttention;

use super::dtypes::DTypes;
use super::ffi;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass of attention, by libtorch's fastest kernel for the device. In training
/// it saves libtorch's autograd graph, by which the backward pass differentiates.
pub(super) fn forward(
    operands: LayerOperands,
    attention: &MultiHeadAttention,
    dtypes: DTypes,
) -> LaunchFunction {
    let (heads, causal) = (attention.heads as i64, attention.causal);
    Box::new(move |launch| {
        let sequence = dtypes.narrow(&operands.input(launch)?)?;
        let trains = operands.writes(Role::Saved);
        let [leaf, result] = ffi::attention(&sequence, heads, causal, trains)?;
        operands.put(launch, Role::Output, &dtypes.widen(&result.f_detach()?)?)?;
        operands.save(launch, vec![leaf, result])
    })
}

/// Returns the backward pass of attention: libtorch's autograd, on the graph that the forward pass
/// saved.
pub(super) fn backward(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let [leaf, result] = operands.saved(launch)?;
        let output_gradient = dtypes.narrow(&operands.output_gradient(launch)?)?;
        let gradient = ffi::gradient(result, leaf, &output_gradient)?;
        operands.put(launch, Role::InputGradient(0), &dtypes.widen(&gradient)?)
    })
}

use layer_graph::MultiHeadAttention;

use super::ffi;
use super::launch::{Operands, Operation};
use super::numbers::Numbers;
use crate::Role;

/// Attention by libtorch's fastest kernel for the device. Its backward pass is autograd's, on the
/// graph that the forward pass recorded.
pub(super) fn forward(operands: Operands, attention: &MultiHeadAttention, numbers: Numbers) -> Operation {
    let (heads, causal) = (attention.heads as i64, attention.causal);
    Box::new(move |launch| {
        let sequence = numbers.narrow(&operands.input(launch)?)?;
        let trains = operands.writes(Role::Saved);
        let [leaf, result] = ffi::attention(&sequence, heads, causal, trains)?;
        operands.put(launch, Role::Output, &numbers.widen(&result.f_detach()?)?)?;
        operands.save(launch, vec![leaf, result])
    })
}

pub(super) fn backward(operands: Operands, numbers: Numbers) -> Operation {
    Box::new(move |launch| {
        let [leaf, result] = operands.saved(launch)?;
        let output_gradient = numbers.narrow(&operands.output_gradient(launch)?)?;
        let gradient = ffi::gradient(result, leaf, &output_gradient)?;
        operands.put(launch, Role::InputGradient(0), &numbers.widen(&gradient)?)
    })
}

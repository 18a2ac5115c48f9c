//! Recurrences of LSTMs and GRUs. Functions return the computation of a pass.

use layer_graph::{Recurrence, RecurrentCell};
use tch::{Tensor, with_grad};

use super::Failure;
use super::dtypes::DTypes;
use super::ffi;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass, position after position. In training it saves libtorch's autograd
/// graph, by which the backward pass differentiates.
pub(super) fn forward(operands: LayerOperands, rule: &Recurrence, dtypes: DTypes) -> LaunchFunction {
    let cell = rule.cell;
    Box::new(move |launch| {
        let mut leaves = vec![operands.input(launch)?];
        leaves.append(&mut operands.parameters(launch)?);
        let is_training = operands.writes(Role::Saved);
        for leaf in &mut leaves {
            *leaf = leaf.f_detach()?.f_set_requires_grad(is_training)?;
        }
        let compute = || outputs(&leaves, cell, dtypes);
        let result = if is_training { with_grad(compute)? } else { compute()? };
        operands.put(launch, Role::Output, &result.f_detach()?)?;
        leaves.push(result);
        operands.save(launch, leaves)
    })
}

/// Computes the outputs. `leaves` are the input and the parameters.
fn outputs(leaves: &[Tensor], cell: RecurrentCell, dtypes: DTypes) -> Result<Tensor, Failure> {
    let (input, weight) = (&leaves[0], dtypes.narrow(&leaves[1])?.f_tr()?);
    let (samples, positions) = (input.size()[0], input.size()[1]);
    let width = input.size()[2] / cell.gates() as i64;
    let zeros = || Tensor::f_zeros([samples, width], (input.kind(), input.device()));
    let (mut state, mut memory) = (zeros()?, zeros()?);
    let mut states = Vec::with_capacity(positions as usize);
    for position in 0..positions {
        let x = input.f_select(1, position)?;
        let mut products = dtypes.widen(&dtypes.narrow(&state)?.f_matmul(&weight)?)?;
        if let Some(bias) = leaves.get(2) {
            products = products.f_add(bias)?;
        }
        state = match cell {
            RecurrentCell::Lstm => {
                let gates = x.f_add(&products)?.f_chunk(4, 1)?;
                let new = gates[0].f_sigmoid()?.f_mul(&gates[2].f_tanh()?)?;
                memory = gates[1].f_sigmoid()?.f_mul(&memory)?.f_add(&new)?;
                gates[3].f_sigmoid()?.f_mul(&memory.f_tanh()?)?
            }
            RecurrentCell::Gru => {
                let (x, products) = (x.f_chunk(3, 1)?, products.f_chunk(3, 1)?);
                let gate = |index: usize| x[index].f_add(&products[index])?.f_sigmoid();
                let new = gate(0)?.f_mul(&products[2])?.f_add(&x[2])?.f_tanh()?;
                new.f_add(&gate(1)?.f_mul(&state.f_sub(&new)?)?)?
            }
        };
        states.push(state.shallow_clone());
    }
    Ok(Tensor::f_stack(&states, 1)?)
}

/// Returns the backward pass: libtorch's autograd, on the graph that the forward pass saved. It
/// computes the input gradient only if the pass has that operand.
pub(super) fn backward(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let (result, leaves) = operands.saved_after(launch, 1 + operands.parameter_count())?;
        let output_gradient = operands.output_gradient(launch)?;
        let gradients = ffi::gradients_of_leaves(result, leaves, &output_gradient)?;
        if operands.writes(Role::InputGradient(0)) {
            operands.put(launch, Role::InputGradient(0), &gradients[0])?;
        }
        operands.put_parameter_gradients(launch, &gradients[1..])
    })
}

//! Recurrences of LSTMs and GRUs. The backward pass is that of [`autograd`].

use layer_graph::{Recurrence, RecurrentCell};
use tch::Tensor;

use super::Failure;
use super::autograd;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};

/// Returns the forward pass, one position after another.
pub(super) fn forward(operands: LayerOperands, rule: &Recurrence, dtypes: DTypes) -> LaunchFunction {
    let rule = rule.clone();
    autograd::forward(operands, move |leaves| outputs(leaves, &rule, dtypes))
}

/// Computes the outputs. `leaves` are the input and the parameters.
fn outputs(leaves: &[Tensor], rule: &Recurrence, dtypes: DTypes) -> Result<Tensor, Failure> {
    let (input, weight) = (&leaves[0], dtypes.narrow(&leaves[1])?.f_tr()?);
    let (samples, positions) = (input.size()[0], input.size()[1]);
    let width = input.size()[2] / rule.cell.gates() as i64;
    let zeros = || Tensor::f_zeros([samples, width], (input.kind(), input.device()));
    let (mut state, mut memory) = (zeros()?, zeros()?);
    let mut states = Vec::with_capacity(positions as usize);
    for step in 0..positions {
        let x = input.f_select(1, if rule.reversed { positions - 1 - step } else { step })?;
        let mut products = dtypes.widen(&dtypes.narrow(&state)?.f_matmul(&weight)?)?;
        if let Some(bias) = leaves.get(2) {
            products = products.f_add(bias)?;
        }
        state = match rule.cell {
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
    if rule.reversed {
        states.reverse();
    }
    Ok(Tensor::f_stack(&states, 1)?)
}

//! Concatenations, parts and permutations. Each function returns the computation of a pass or of a
//! kernel that belongs to no layer.

use layer_graph::Pad;
use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the dimension along which a concatenation joins inputs of these sizes, with the batch:
/// the channels of images, or the features of sequences and of vectors.
fn joined_dimension(inputs: &[Vec<i64>]) -> usize {
    if inputs.first().is_some_and(|dims| dims.len() == 3) { 2 } else { 1 }
}

/// Returns the computation that concatenates all inputs.
pub(super) fn concatenate(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let inputs =
            operands.inputs.iter().enumerate().map(|(slot, dims)| {
                Ok(operands.source(launch, Role::Input(slot))?.flat()?.f_view(&dims[..])?)
            });
        let inputs = inputs.collect::<Result<Vec<Tensor>, Failure>>()?;
        let output = Tensor::f_cat(&inputs, joined_dimension(&operands.inputs) as i64)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns the backward pass of [`concatenate`]: the parts of the output gradient.
pub(super) fn split(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let joined = operands.output_gradient(launch)?;
        let (mut start, dimension) = (0, joined_dimension(&operands.inputs));
        for (slot, dims) in operands.inputs.iter().enumerate() {
            let length = dims[dimension];
            let part = joined.f_narrow(dimension as i64, start, length)?.f_alias_copy()?;
            operands.put(launch, Role::InputGradient(slot), &part)?;
            start += length;
        }
        Ok(())
    })
}

/// Returns the computation that permutes the dimensions of each sample, so that output dimension
/// `i` is input dimension `order[i]`, or its backward pass.
pub(super) fn permute(operands: LayerOperands, order: &[usize], backward: bool) -> LaunchFunction {
    let forward_order: Vec<i64> = std::iter::once(0).chain(order.iter().map(|&dim| dim as i64 + 1)).collect();
    Box::new(move |launch| {
        if backward {
            let mut inverse = vec![0; forward_order.len()];
            for (place, &dim) in forward_order.iter().enumerate() {
                inverse[dim as usize] = place as i64;
            }
            let gradient = operands.output_gradient(launch)?.f_permute(inverse)?.f_alias_copy()?;
            operands.put(launch, Role::InputGradient(0), &gradient)
        } else {
            let output = operands.input(launch)?.f_permute(forward_order.as_slice())?.f_alias_copy()?;
            operands.put(launch, Role::Output, &output)
        }
    })
}

/// Returns the computation that selects `length` positions from `start` on of the outermost
/// dimension of each sample, or its backward pass, which writes zeros elsewhere.
pub(super) fn select(
    operands: LayerOperands,
    [start, length]: [usize; 2],
    dtypes: DTypes,
    backward: bool,
) -> LaunchFunction {
    let [start, length] = [start, length].map(|positions| positions as i64);
    Box::new(move |launch| {
        if backward {
            let gradient = Tensor::f_zeros(&operands.inputs[0][..], (dtypes.kind, dtypes.device))?;
            let mut part = gradient.f_narrow(1, start, length)?;
            let of_output = operands.output_gradient(launch)?.f_view_as(&part)?;
            part.f_copy_(&of_output)?;
            operands.put(launch, Role::InputGradient(0), &gradient)
        } else {
            let output = operands.input(launch)?.f_narrow(1, start, length)?.f_alias_copy()?;
            operands.put(launch, Role::Output, &output)
        }
    })
}

/// Returns a pass of a padding of images with zeros. The gradient is the padding by as many
/// negative pixels, which removes them.
pub(super) fn pad(operands: LayerOperands, pad: &Pad, backward: bool) -> LaunchFunction {
    let [[top, left], [bottom, right]] = [pad.before, pad.after].map(|sides| sides.map(|side| side as i64));
    let sides = [left, right, top, bottom].map(|side| if backward { -side } else { side });
    Box::new(move |launch| {
        let from = if backward { operands.output_gradient(launch)? } else { operands.input(launch)? };
        let to = if backward { Role::InputGradient(0) } else { Role::Output };
        operands.put(launch, to, &from.f_constant_pad_nd(sides)?)
    })
}

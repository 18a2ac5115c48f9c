//! Embeddings, position embeddings and class tokens. Each function returns the computation of a
//! pass.

use layer_graph::{PositionEmbedding, RotaryEmbedding};
use tch::Tensor;

use super::Failure;
use super::dtypes::DTypes;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use super::loss::IndexConversion;
use crate::Role;

/// Returns the forward pass of an embedding: the learned vector of each token. `tokens` converts
/// the input to indices.
pub(super) fn embedding(operands: LayerOperands, tokens: IndexConversion) -> LaunchFunction {
    Box::new(move |launch| {
        let (tokens, _) = tokens.convert(&operands.input(launch)?)?;
        let output = Tensor::f_embedding(&operands.parameters(launch)?[0], &tokens, -1, false, false)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns the backward pass of an embedding: sums the output gradients at the positions of each
/// token. The input gradient, if it is an operand, and the gradient of the vector of `padding` are
/// zero.
pub(super) fn embedding_backward(
    operands: LayerOperands,
    tokens: IndexConversion,
    padding: Option<usize>,
) -> LaunchFunction {
    let padding = padding.map_or(-1, |token| token as i64);
    Box::new(move |launch| {
        let (indices, _) = tokens.convert(&operands.input(launch)?)?;
        let output_gradient = operands.output_gradient(launch)?;
        let gradient =
            Tensor::f_embedding_dense_backward(&output_gradient, &indices, tokens.limit(), padding, false)?;
        operands.put_parameter_gradients(launch, &[gradient])?;
        if operands.writes(Role::InputGradient(0)) {
            let _ = operands.target(launch, Role::InputGradient(0))?.flat()?.f_zero_()?;
        }
        Ok(())
    })
}

/// Returns the forward pass of a position embedding: adds a learned vector to each position of a
/// sequence.
pub(super) fn positions(operands: LayerOperands, rule: &PositionEmbedding) -> LaunchFunction {
    let [first, count] = used_vectors(&operands, rule);
    Box::new(move |launch| {
        let input = operands.input(launch)?;
        let vectors = operands.parameters(launch)?[0].f_narrow(1, first, count)?;
        operands.put(launch, Role::Output, &input.f_add(&vectors)?)
    })
}

/// Returns the backward pass of a position embedding. Vectors that are not added get a zero
/// gradient.
pub(super) fn positions_backward(operands: LayerOperands, rule: &PositionEmbedding) -> LaunchFunction {
    let [first, count] = used_vectors(&operands, rule);
    let dims: &[i64] = if rule.repeated { &[0, 1] } else { &[0] };
    Box::new(move |launch| {
        let output_gradient = operands.output_gradient(launch)?;
        let gradient = &mut operands.parameter_gradients(launch)?[0];
        let sums = output_gradient.f_sum_dim_intlist(dims, true, None)?;
        let _ = gradient.f_zero_()?;
        gradient.f_narrow(1, first, count)?.f_copy_(&sums)?;
        put_input_gradient(&operands, launch, &output_gradient)
    })
}

/// Returns the index of the first vector that is added, and the number of such vectors.
fn used_vectors(operands: &LayerOperands, rule: &PositionEmbedding) -> [i64; 2] {
    let positions = operands.inputs[0][1] as usize;
    [rule.first as i64, rule.used(positions) as i64]
}

/// Returns a pass of a rotary embedding, whose gradient is the inverse rotation.
pub(super) fn rotary_embedding(
    operands: LayerOperands,
    rule: &RotaryEmbedding,
    dtypes: DTypes,
    backward: bool,
) -> Result<LaunchFunction, Failure> {
    let (rotated, half) = (rule.rotated_features() as i64, rule.rotated_features() / 2);
    let rest = rule.width as i64 - rotated;
    // Dimension of the features of a pair, of `samples x rows x heads x ...`.
    let (pairs_dims, along) = if rule.interleaved { ([half as i64, 2], 4) } else { ([2, half as i64], 3) };
    let width = rule.width as i64;
    let rows = operands.inputs[0][1];
    let angles = (0..rows as usize * half).map(|index| rule.angle(index / half, index % half));
    let angles: Vec<f64> = angles.map(|angle| if backward { -angle } else { angle }).collect();
    let angles = Tensor::f_from_slice(&angles)?.f_view([rows, 1, half as i64])?;
    let place = |turns: Tensor| turns.f_to_kind(dtypes.kind)?.f_to_device(dtypes.device);
    let (cosines, sines) = (place(angles.f_cos()?)?, place(angles.f_sin()?)?);
    Ok(Box::new(move |launch| {
        let input = if backward { operands.output_gradient(launch)? } else { operands.input(launch)? };
        let heads = input.f_view([-1, rows, input.size()[2] / width, width])?;
        let pairs = heads.f_narrow(3, 0, rotated)?.f_unflatten(3, pairs_dims)?;
        let (a, b) = (pairs.f_select(along, 0)?, pairs.f_select(along, 1)?);
        let turned =
            [a.f_mul(&cosines)?.f_sub(&b.f_mul(&sines)?)?, b.f_mul(&cosines)?.f_add(&a.f_mul(&sines)?)?];
        let turned = Tensor::f_stack(&turned, along)?.f_flatten(3, 4)?;
        let output =
            if rest == 0 { turned } else { Tensor::f_cat(&[turned, heads.f_narrow(3, rotated, rest)?], 3)? };
        let output = output.f_reshape(input.size())?;
        operands.put(launch, if backward { Role::InputGradient(0) } else { Role::Output }, &output)
    }))
}

/// Returns the forward pass of a class token: prepends a learned vector to each sequence.
pub(super) fn class_token(operands: LayerOperands, dtypes: DTypes) -> LaunchFunction {
    Box::new(move |launch| {
        let output = Tensor::f_empty(&operands.output[..], (dtypes.kind, dtypes.device))?;
        output.f_narrow(1, 0, 1)?.f_copy_(&operands.parameters(launch)?[0])?;
        output.f_narrow(1, 1, operands.inputs[0][1])?.f_copy_(&operands.input(launch)?)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns the backward pass of a class token. It computes the input gradient only if the pass has
/// that operand.
pub(super) fn class_token_backward(operands: LayerOperands) -> LaunchFunction {
    Box::new(move |launch| {
        let output_gradient = operands.output_gradient(launch)?;
        let token = output_gradient.f_narrow(1, 0, 1)?.f_sum_dim_intlist([0i64].as_slice(), true, None)?;
        operands.put_parameter_gradients(launch, &[token])?;
        put_input_gradient(&operands, launch, &output_gradient.f_narrow(1, 1, operands.inputs[0][1])?)
    })
}

fn put_input_gradient(
    operands: &LayerOperands,
    launch: &mut Launch<'_, '_>,
    gradient: &Tensor,
) -> Result<(), Failure> {
    if operands.writes(Role::InputGradient(0)) {
        operands.put(launch, Role::InputGradient(0), &gradient.f_alias_copy()?)?;
    }
    Ok(())
}

//! Root-mean-square normalisation over vectors of `features` elements, the innermost dimension.
//! Functions return the computation of a pass.

use layer_graph::RmsNorm;
use tch::Tensor;

use super::Failure;
use super::launch::{Launch, LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass, which saves `1 / sqrt(mean(x^2) + epsilon)` of each vector in
/// training.
pub(super) fn forward(operands: LayerOperands, norm: &RmsNorm) -> LaunchFunction {
    let norm = norm.clone();
    Box::new(move |launch| {
        let input = operands.input(launch)?;
        let squares = input.f_mul(&input)?.f_mean_dim([-1i64].as_slice(), true, None)?;
        let inverse = squares.f_add_scalar(norm.epsilon)?.f_rsqrt()?;
        let output = input.f_mul(&inverse)?.f_mul(&factor(&operands, launch, &norm)?)?;
        operands.put(launch, Role::Output, &output)?;
        operands.save(launch, vec![inverse])
    })
}

/// Returns the backward pass. It computes the input gradient only if the pass has that operand.
pub(super) fn backward(operands: LayerOperands, norm: &RmsNorm, features: i64) -> LaunchFunction {
    let norm = norm.clone();
    let wants_input = operands.writes(Role::InputGradient(0));
    Box::new(move |launch| {
        let [inverse] = operands.saved(launch)?;
        let (input, gradient) = (operands.input(launch)?, operands.output_gradient(launch)?);
        let rows = gradient.f_mul(&input)?.f_mul(inverse)?.f_view([-1, features])?;
        let of_weight = rows.f_sum_dim_intlist([0i64].as_slice(), false, None)?;
        operands.put_parameter_gradients(launch, &[of_weight])?;
        if wants_input {
            let scaled = gradient.f_mul(&factor(&operands, launch, &norm)?)?;
            let products = scaled.f_mul(&input)?.f_mean_dim([-1i64].as_slice(), true, None)?;
            let along = input.f_mul(&products)?.f_mul(inverse)?.f_mul(inverse)?;
            operands.put(launch, Role::InputGradient(0), &scaled.f_sub(&along)?.f_mul(inverse)?)?;
        }
        Ok(())
    })
}

/// Returns the factor of each feature.
fn factor(operands: &LayerOperands, launch: &Launch<'_, '_>, norm: &RmsNorm) -> Result<Tensor, Failure> {
    let weight = operands.parameters(launch)?.swap_remove(0);
    if norm.unit_offset { Ok(weight.f_add_scalar(1.0)?) } else { Ok(weight) }
}

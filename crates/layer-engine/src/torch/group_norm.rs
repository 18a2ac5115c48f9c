//! Group normalisation. Functions return the computation of a pass.

use layer_graph::GroupNorm;

use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns the forward pass, which saves the mean and `1 / sqrt(variance + epsilon)` of each group
/// in training.
pub(super) fn forward(operands: LayerOperands, norm: &GroupNorm) -> LaunchFunction {
    let (groups, epsilon) = (norm.groups as i64, norm.epsilon);
    Box::new(move |launch| {
        let input = operands.input(launch)?;
        let (samples, channels) = (input.size()[0], input.size()[1]);
        let pixels: i64 = input.size()[2..].iter().product();
        let parameters = operands.parameters(launch)?;
        let (weight, bias) = (parameters.first(), parameters.get(1));
        let (output, mean, inverse) =
            input.f_native_group_norm(weight, bias, samples, channels, pixels, groups, epsilon)?;
        operands.put(launch, Role::Output, &output)?;
        operands.save(launch, vec![mean, inverse])
    })
}

/// Returns the backward pass. It computes the input gradient only if the pass has that operand.
pub(super) fn backward(operands: LayerOperands, norm: &GroupNorm) -> LaunchFunction {
    let groups = norm.groups as i64;
    let wants_input = operands.writes(Role::InputGradient(0));
    Box::new(move |launch| {
        let [mean, inverse] = operands.saved(launch)?;
        let input = operands.input(launch)?;
        let (samples, channels) = (input.size()[0], input.size()[1]);
        let (rows, by_channel) = ([samples, groups, -1], [samples, channels, -1]);
        let [mean, inverse] = [mean.f_view([samples, groups, 1])?, inverse.f_view([samples, groups, 1])?];
        let normalised = input.f_view(rows)?.f_sub(&mean)?.f_mul(&inverse)?;
        let gradient = operands.output_gradient(launch)?.f_view(by_channel)?;
        let products = gradient.f_mul(&normalised.f_view(by_channel)?)?;
        let of_weight = products.f_sum_dim_intlist([0i64, 2].as_slice(), false, None)?;
        let of_bias = gradient.f_sum_dim_intlist([0i64, 2].as_slice(), false, None)?;
        operands.put_parameter_gradients(launch, &[of_weight, of_bias])?;
        if wants_input {
            let weight = operands.parameters(launch)?.swap_remove(0).f_view([1, channels, 1])?;
            let scaled = gradient.f_mul(&weight)?.f_view(rows)?;
            let mean = scaled.f_mean_dim([-1i64].as_slice(), true, None)?;
            let slope = scaled.f_mul(&normalised)?.f_mean_dim([-1i64].as_slice(), true, None)?;
            let along = normalised.f_mul(&slope)?;
            let input_gradient = scaled.f_sub(&mean)?.f_sub(&along)?.f_mul(&inverse)?;
            operands.put(launch, Role::InputGradient(0), &input_gradient.f_view_as(&input)?)?;
        }
        Ok(())
    })
}

//! Local response normalisation over neighbouring channels. Functions return the computation of a
//! pass.

use layer_graph::LocalResponseNorm;
use tch::Tensor;

use super::Failure;
use super::ffi;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

fn normalised(input: &Tensor, norm: &LocalResponseNorm) -> Result<Tensor, Failure> {
    let size = norm.size as i64;
    // Channels become the depth of a volume, so that a pooling can run over them.
    let squares =
        input.f_square()?.f_unsqueeze(1)?.f_constant_pad_nd([0, 0, 0, 0, size / 2, (size - 1) / 2])?;
    let means =
        squares.f_avg_pool3d([size, 1, 1], [1, 1, 1], [0, 0, 0], false, true, None)?.f_squeeze_dim(1)?;
    let divisor = means.f_mul_scalar(norm.alpha)?.f_add_scalar(norm.k)?.f_pow_tensor_scalar(norm.beta)?;
    Ok(input.f_div(&divisor)?)
}

/// Returns the forward pass.
pub(super) fn forward(operands: LayerOperands, norm: LocalResponseNorm) -> LaunchFunction {
    Box::new(move |launch| {
        let output = normalised(&operands.input(launch)?, &norm)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns the backward pass, which recomputes the output and differentiates it by libtorch's
/// autograd.
pub(super) fn backward(operands: LayerOperands, norm: LocalResponseNorm) -> LaunchFunction {
    Box::new(move |launch| {
        let leaf = operands.input(launch)?.f_detach()?.f_set_requires_grad(true)?;
        let result = tch::with_grad(|| normalised(&leaf, &norm))?;
        let gradient = ffi::gradient(&result, &leaf, &operands.output_gradient(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    })
}

//! Activations, and sums and copies of buffers. Each function returns the computation of a pass or
//! of a kernel that belongs to no layer.

use layer_graph::{LayerKind, Scale};
use tch::Tensor;

use super::Failure;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Returns a pass of an activation. `None` for another kind of layer.
pub(super) fn elementwise(
    kind: &LayerKind,
    operands: LayerOperands,
    backward: bool,
) -> Option<LaunchFunction> {
    Some(match kind {
        LayerKind::Relu if backward => backward_of_output(operands, |dy, y| y.f_threshold_backward(dy, 0.0)),
        LayerKind::Relu => forward(operands, Tensor::f_relu),
        LayerKind::GeluTanh | LayerKind::Gelu => {
            let approximate = if *kind == LayerKind::Gelu { "none" } else { "tanh" };
            if backward {
                backward_of_input(operands, |dy, x| x.f_gelu_backward(dy, approximate))
            } else {
                forward(operands, |x| x.f_gelu(approximate))
            }
        }
        LayerKind::Relu6 if backward => {
            backward_of_output(operands, |dy, y| y.f_hardtanh_backward(dy, 0.0, 6.0))
        }
        LayerKind::Relu6 => forward(operands, Tensor::f_relu6),
        LayerKind::LeakyRelu(rule) => {
            let slope = rule.negative_slope;
            if backward {
                backward_of_output(operands, move |dy, y| y.f_leaky_relu_backward(dy, slope, true))
            } else {
                // `f_leaky_relu` has no slope. The function multiplies by its own derivative.
                forward(operands, move |x| x.f_leaky_relu_backward(x, slope, false))
            }
        }
        // The output of a hard sigmoid is between 0 and 1 where it has a slope.
        LayerKind::HardSigmoid if backward => backward_of_output(operands, |dy, y| {
            y.f_hardtanh_backward(&dy.f_mul_scalar(1.0 / 6.0)?, 0.0, 1.0)
        }),
        LayerKind::HardSigmoid => forward(operands, Tensor::f_hardsigmoid),
        LayerKind::HardSwish if backward => backward_of_input(operands, |dy, x| x.f_hardswish_backward(dy)),
        LayerKind::HardSwish => forward(operands, Tensor::f_hardswish),
        LayerKind::Silu if backward => backward_of_input(operands, |dy, x| x.f_silu_backward(dy)),
        LayerKind::Silu => forward(operands, Tensor::f_silu),
        LayerKind::QuickGelu if backward => backward_of_input(operands, |dy, x| {
            let gate = x.f_mul_scalar(1.702)?.f_sigmoid()?;
            let slope = gate.f_neg()?.f_add_scalar(1.0)?.f_mul(x)?.f_mul_scalar(1.702)?.f_add_scalar(1.0)?;
            dy.f_mul(&gate)?.f_mul(&slope)
        }),
        LayerKind::QuickGelu => forward(operands, |x| x.f_mul_scalar(1.702)?.f_sigmoid()?.f_mul(x)),
        LayerKind::Sigmoid if backward => backward_of_output(operands, Tensor::f_sigmoid_backward),
        LayerKind::Sigmoid => forward(operands, Tensor::f_sigmoid),
        LayerKind::Tanh if backward => backward_of_output(operands, Tensor::f_tanh_backward),
        LayerKind::Tanh => forward(operands, Tensor::f_tanh),
        _ => return None,
    })
}

/// Returns a forward pass that applies `function` to the input, elementwise or over its innermost
/// dimension.
pub(super) fn forward(
    operands: LayerOperands,
    function: impl Fn(&Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let output = function(&operands.input(launch)?)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Returns a backward pass that computes the input gradient from the output gradient and the input,
/// the arguments of `derivative`.
pub(super) fn backward_of_input(
    operands: LayerOperands,
    derivative: impl Fn(&Tensor, &Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let gradient = derivative(&operands.output_gradient(launch)?, &operands.input(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    })
}

/// Returns a backward pass that computes the input gradient from the output gradient and the
/// output, the arguments of `derivative`.
pub(super) fn backward_of_output(
    operands: LayerOperands,
    derivative: impl Fn(&Tensor, &Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let gradient = derivative(&operands.output_gradient(launch)?, &operands.output(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    })
}

/// Returns a pass of the product of two inputs.
pub(super) fn multiply(operands: LayerOperands, backward: bool) -> LaunchFunction {
    Box::new(move |launch| {
        let [a, b] = operands.two_inputs(launch)?;
        if !backward {
            return operands.put(launch, Role::Output, &a.f_mul(&b)?);
        }
        let gradient = operands.output_gradient(launch)?;
        operands.put(launch, Role::InputGradient(0), &gradient.f_mul(&b)?)?;
        let product = gradient.f_mul(&a)?;
        if product.size() == b.size() {
            return operands.put(launch, Role::InputGradient(1), &product);
        }
        // One number a channel.
        operands.put(launch, Role::InputGradient(1), &product.f_sum_dim_intlist(&[2i64, 3][..], true, None)?)
    })
}

/// Returns a pass of a scaling.
pub(super) fn scaled(operands: LayerOperands, rule: &Scale, backward: bool) -> LaunchFunction {
    let rule = rule.clone();
    Box::new(move |launch| {
        if let Scale::Constant(factor) = rule {
            return if backward {
                let gradient = operands.output_gradient(launch)?;
                operands.put(launch, Role::InputGradient(0), &gradient.f_mul_scalar(factor)?)
            } else {
                let input = operands.input(launch)?;
                operands.put(launch, Role::Output, &input.f_mul_scalar(factor)?)
            };
        }
        let input = operands.input(launch)?;
        // Dimension of the factors.
        let dim = if rule == Scale::Channels { 1 } else { input.dim() - 1 };
        let mut view = vec![1; input.dim()];
        view[dim] = input.size()[dim];
        if !backward {
            let factors = operands.parameters(launch)?[0].f_view(&view[..])?;
            return operands.put(launch, Role::Output, &input.f_mul(&factors)?);
        }
        let gradient = operands.output_gradient(launch)?;
        if operands.writes(Role::InputGradient(0)) {
            let factors = operands.parameters(launch)?[0].f_view(&view[..])?;
            operands.put(launch, Role::InputGradient(0), &gradient.f_mul(&factors)?)?;
        }
        let others: Vec<i64> = (0..input.dim()).filter(|&other| other != dim).map(|dim| dim as i64).collect();
        let sums = gradient.f_mul(&input)?.f_sum_dim_intlist(&others[..], false, None)?;
        operands.put_parameter_gradients(launch, &[sums])
    })
}

/// Returns the computation of the sum of all operands that are read, in order.
pub(super) fn sum() -> LaunchFunction {
    Box::new(|launch| {
        let mut terms = launch.reads.iter().map(|buffer| buffer.flat());
        let Some(first) = terms.next().transpose()? else { return Ok(()) };
        let Some(second) = terms.next().transpose()? else { return put_all(launch.writes, &first) };
        let mut sum = first.f_add(&second)?;
        for term in terms {
            sum = sum.f_add_(&term?)?;
        }
        launch.writes.iter_mut().try_for_each(|target| target.put(&sum))
    })
}

/// Returns the computation of the sum of `terms` consecutive parts of the operand that is read.
pub(super) fn sum_parts(terms: usize) -> LaunchFunction {
    Box::new(move |launch| {
        let Some(parts) = launch.reads.first() else { return Ok(()) };
        let rows = parts.flat()?.f_view([terms as i64, -1])?;
        let sum = rows.f_sum_dim_intlist([0i64].as_slice(), false, None)?;
        launch.writes.iter_mut().try_for_each(|target| target.put(&sum))
    })
}

/// Returns the computation that adds the operand that is read to the one that is written.
pub(super) fn add_in_place() -> LaunchFunction {
    Box::new(|launch| {
        for (target, term) in launch.writes.iter_mut().zip(launch.reads) {
            let _ = target.flat()?.f_add_(&term.flat()?)?;
        }
        Ok(())
    })
}

/// Returns the computation that scales consecutive ranges of elements in place. `factors` has the
/// number of elements and the factor of each range; a factor of 0 writes zeros.
pub(super) fn scale(factors: Vec<(usize, f64)>) -> LaunchFunction {
    Box::new(move |launch| {
        for target in launch.writes.iter_mut() {
            let (flat, mut start) = (target.flat()?, 0);
            for &(elements, factor) in &factors {
                let mut part = flat.f_narrow(0, start, elements as i64)?;
                let _ = if factor == 0.0 { part.f_zero_()? } else { part.f_mul_scalar_(factor)? };
                start += elements as i64;
            }
        }
        Ok(())
    })
}

/// Returns the computation that copies the operand that is read to each operand that is written.
pub(super) fn copies() -> LaunchFunction {
    Box::new(|launch| {
        let source = launch.reads.first().map(|buffer| buffer.flat()).transpose()?;
        source.map_or(Ok(()), |source| put_all(launch.writes, &source))
    })
}

fn put_all(targets: &mut [&mut super::TorchBuffer], source: &Tensor) -> Result<(), Failure> {
    targets.iter_mut().try_for_each(|target| target.put(&source.f_alias_copy()?))
}

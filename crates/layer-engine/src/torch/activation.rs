use tch::Tensor;

use super::Failure;
use super::launch::{LaunchFunction, LayerOperands};
use crate::Role;

/// Applies a function to the input, elementwise or over its innermost dimension.
pub(super) fn forward(
    operands: LayerOperands,
    function: impl Fn(&Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let output = function(&operands.input(launch)?)?;
        operands.put(launch, Role::Output, &output)
    })
}

/// Computes the input gradient from the output gradient and the input.
pub(super) fn backward_of_input(
    operands: LayerOperands,
    derivative: impl Fn(&Tensor, &Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let gradient = derivative(&operands.output_gradient(launch)?, &operands.input(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    })
}

/// Computes the input gradient from the output gradient and the output.
pub(super) fn backward_of_output(
    operands: LayerOperands,
    derivative: impl Fn(&Tensor, &Tensor) -> Result<Tensor, tch::TchError> + Send + 'static,
) -> LaunchFunction {
    Box::new(move |launch| {
        let gradient = derivative(&operands.output_gradient(launch)?, &operands.output(launch)?)?;
        operands.put(launch, Role::InputGradient(0), &gradient)
    })
}

/// Adds all operands that are read, in order.
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

/// Scales consecutive ranges of elements in place, each by its own factor.
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

/// Copies the operand that is read to each operand that is written.
pub(super) fn copies() -> LaunchFunction {
    Box::new(|launch| {
        let source = launch.reads.first().map(|buffer| buffer.flat()).transpose()?;
        source.map_or(Ok(()), |source| put_all(launch.writes, &source))
    })
}

fn put_all(targets: &mut [&mut super::TorchBuffer], source: &Tensor) -> Result<(), Failure> {
    targets.iter_mut().try_for_each(|target| target.put(&source.f_alias_copy()?))
}

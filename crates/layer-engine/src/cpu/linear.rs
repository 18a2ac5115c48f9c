use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Which of a linear layer's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinearPass {
    Forward,
    Backward,
    BackwardParameters,
}

/// A linear layer: products over the whole shard.
#[derive(Debug)]
pub(super) struct LinearLayer {
    pub(super) inputs: usize,
    pub(super) outputs: usize,
    pub(super) samples: usize,
    pub(super) pass: LinearPass,
    pub(super) workers: Workers,
}

impl LinearLayer {
    fn forward<T: Real>(&self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (weight, bias) = parameters.split_at(self.outputs * self.inputs);
        let mode = if bias.is_empty() { Update::Overwrite } else { Update::Accumulate };
        if !bias.is_empty() {
            output.chunks_exact_mut(self.outputs).for_each(|row| row.copy_from_slice(bias));
        }
        let input = Matrix::new(input, self.samples, self.inputs);
        let weight = Matrix::new(weight, self.outputs, self.inputs).transposed();
        let output = MatrixMut::new(output, self.samples, self.outputs);
        self.workers.install(|parallelism| multiply(output, mode, input, weight, parallelism));
    }

    fn input_gradient<T: Real>(&self, parameters: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let weight = Matrix::new(&parameters[..self.outputs * self.inputs], self.outputs, self.inputs);
        let output = Matrix::new(output_gradient, self.samples, self.outputs);
        let target = MatrixMut::new(input_gradient, self.samples, self.inputs);
        self.workers.install(|parallelism| multiply(target, Update::Overwrite, output, weight, parallelism));
    }

    fn parameter_gradient<T: Real>(&self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (weight, bias) = gradient.split_at_mut(self.outputs * self.inputs);
        bias.fill(T::zero());
        if !bias.is_empty() {
            for row in output_gradient.chunks_exact(self.outputs) {
                bias.iter_mut().zip(row).for_each(|(sum, &gradient)| *sum += gradient);
            }
        }
        let input = Matrix::new(input, self.samples, self.inputs);
        let output = Matrix::new(output_gradient, self.samples, self.outputs).transposed();
        let target = MatrixMut::new(weight, self.outputs, self.inputs);
        self.workers.install(|parallelism| multiply(target, Update::Overwrite, output, input, parallelism));
    }
}

impl<T: Real> Operation<T> for LinearLayer {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LinearPass::Forward => {
                let ([input, parameters], [output]) = operands.exactly()?;
                self.forward(input, parameters, output);
            }
            LinearPass::Backward => {
                let ([input, parameters, output_gradient], [input_gradient, gradient]) =
                    operands.exactly()?;
                self.input_gradient(parameters, output_gradient, input_gradient);
                self.parameter_gradient(input, output_gradient, gradient);
            }
            LinearPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.exactly()?;
                self.parameter_gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}

//! Linear layers. Each position of a sequence counts as a sample.

use super::Real;
use super::operation::{Operands, Operation};
use super::product::{LeftStrides, Product, RightOrder};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Pass of a linear layer, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinearPass {
    /// Computes the output, in training and evaluation.
    Forward,
    /// Computes the gradients of the input and of the parameters.
    Backward,
    /// Computes the gradients of the parameters only.
    BackwardParameters,
}

/// A pass of a linear layer, computed as products over the whole shard.
#[derive(Debug)]
pub(super) struct LinearLayer<T: 'static> {
    inputs: usize,
    outputs: usize,
    pass: LinearPass,
    workers: Workers,
    /// Product that computes the output, or the input gradient from the output gradient.
    activations: Product<T>,
    weights: Product<T>,
}

impl<T: Real> LinearLayer<T> {
    /// Creates a pass over `samples` samples of `inputs` features, with `outputs` features in the
    /// output.
    pub(super) fn new(
        [inputs, outputs]: [usize; 2],
        samples: usize,
        pass: LinearPass,
        workers: &Workers,
    ) -> Self {
        let product = |sizes, order| Product::new(T::kernels()[0], sizes, order, workers);
        let none = || product([0; 3], RightOrder::RowMajor);
        let activations = match pass {
            LinearPass::Forward => product([samples, outputs, inputs], RightOrder::Transposed),
            LinearPass::Backward => product([samples, inputs, outputs], RightOrder::RowMajor),
            LinearPass::BackwardParameters => none(),
        };
        let weights = match pass {
            LinearPass::Forward => none(),
            _ => product([outputs, inputs, samples], RightOrder::RowMajor),
        };
        Self { inputs, outputs, pass, workers: workers.clone(), activations, weights }
    }

    fn forward(&mut self, input: &[T], parameters: &[T], output: &mut [T]) {
        let (weight, bias) = parameters.split_at(self.outputs * self.inputs);
        if !bias.is_empty() {
            output.chunks_exact_mut(self.outputs).for_each(|row| row.copy_from_slice(bias));
        }
        let strides = LeftStrides { row: self.inputs, term: 1 };
        self.activations.run((input, strides), weight, output, !bias.is_empty(), &self.workers);
    }

    fn input_gradient(&mut self, parameters: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let weight = &parameters[..self.outputs * self.inputs];
        let strides = LeftStrides { row: self.outputs, term: 1 };
        self.activations.run((output_gradient, strides), weight, input_gradient, false, &self.workers);
    }

    fn parameter_gradient(&mut self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (weight, bias) = gradient.split_at_mut(self.outputs * self.inputs);
        bias.fill(T::zero());
        if !bias.is_empty() {
            for row in output_gradient.chunks_exact(self.outputs) {
                bias.iter_mut().zip(row).for_each(|(sum, &gradient)| *sum += gradient);
            }
        }
        let strides = LeftStrides { row: 1, term: self.outputs };
        self.weights.run((output_gradient, strides), input, weight, false, &self.workers);
    }
}

impl<T: Real> Operation<T> for LinearLayer<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            LinearPass::Forward => {
                let ([input, parameters], [output]) = operands.into_arrays()?;
                self.forward(input, parameters, output);
            }
            LinearPass::Backward => {
                let ([input, parameters, output_gradient], [input_gradient, gradient]) =
                    operands.into_arrays()?;
                self.input_gradient(parameters, output_gradient, input_gradient);
                self.parameter_gradient(input, output_gradient, gradient);
            }
            LinearPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.into_arrays()?;
                self.parameter_gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}

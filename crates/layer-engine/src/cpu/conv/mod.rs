//! Convolutions as matrix products without a materialised im2col matrix (im2col: Chellapilla, Puri
//! and Simard, 2006; blocking and packing: Goto and van de Geijn, 2008).
//!
//! A *window* is the part of the image that one output element reads, and a *tap* is an element of
//! the convolution kernel. The products have a row for each channel, a column for each window and a
//! term for each tap of each summed channel. Parameters named `kernels` are the inner loops of an
//! instruction set (module `simd`).

mod band;
mod blocks;
mod correlation;
mod stencil;
#[cfg(test)]
mod tests;
mod weight_gradient;
mod weights;

use super::Real;
use super::operation::{Operands, Operation};
use super::simd::{Kernels, Shared};
use super::sums::sum;
use super::workers::Workers;
use crate::{EngineError, LaunchContext, Pass};
use correlation::{Correlation, CorrelationWorkspace};
pub(super) use stencil::Geometry;
use weight_gradient::WeightGradient;
use weights::{WeightOrder, Weights};

/// Pass of a convolution, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConvPass {
    /// Computes the output, in training and evaluation.
    Forward,
    /// Computes the gradients of the input and of the parameters.
    Backward,
    /// Computes the gradients of the parameters only.
    BackwardParameters,
}

impl ConvPass {
    /// Returns the pass of a layer's pass.
    pub(super) fn of(pass: Pass) -> Self {
        match pass {
            Pass::Backward => Self::Backward,
            Pass::BackwardParameters => Self::BackwardParameters,
            _ => Self::Forward,
        }
    }
}

/// A pass of a convolution with its workspace.
///
/// The output of a transposed convolution is the input gradient of a convolution, and the gradient
/// of its input is that convolution's output.
#[derive(Debug)]
pub(super) struct Convolution<T: 'static> {
    geometry: Geometry,
    pass: ConvPass,
    workers: Workers,
    /// Correlations that compute the output, or the input gradient from the output gradient: one
    /// for each remainder of the stride.
    correlations: Vec<Correlation<T>>,
    workspaces: Vec<CorrelationWorkspace<T>>,
    weight_gradient: Option<WeightGradient<T>>,
}

impl<T: Real> Convolution<T> {
    /// Creates a pass over `samples` samples with the fastest vector instructions that the
    /// processor supports.
    pub(super) fn new(geometry: Geometry, samples: usize, pass: ConvPass, workers: &Workers) -> Self {
        Self::with_kernels(T::kernels()[0], geometry, samples, pass, workers)
    }

    fn with_kernels(
        kernels: &'static Kernels<T>,
        geometry: Geometry,
        samples: usize,
        pass: ConvPass,
        workers: &Workers,
    ) -> Self {
        let Geometry { groups, channels, filters, .. } = geometry;
        let (stencils, order, [rows, summed]) = match pass {
            ConvPass::BackwardParameters => (Vec::new(), WeightOrder::RowsSecond, [0, 0]),
            _ if (pass == ConvPass::Forward) != geometry.is_transposed => {
                (vec![geometry.forward()], WeightOrder::RowsFirst, [filters, channels])
            }
            _ => (geometry.backward(), WeightOrder::RowsSecond, [channels, filters]),
        };
        let correlation = |stencil: stencil::Stencil| {
            let taps = stencil.taps.iter().map(|tap| tap.index).collect();
            let weights = Weights::new(kernels, order, taps, geometry.taps(), [groups, rows, summed]);
            Correlation::new(kernels, stencil, weights, [groups, summed, rows], samples, workers.threads())
        };
        let correlations: Vec<_> = stencils.into_iter().map(correlation).collect();
        let weight_gradient = (pass != ConvPass::Forward).then(|| {
            let sizes = [groups, channels, filters];
            WeightGradient::new(kernels, geometry.forward(), sizes, samples, workers)
        });
        let workspaces = (0..workers.threads()).map(|_| CorrelationWorkspace::new(&correlations)).collect();
        Self { geometry, pass, workers: workers.clone(), correlations, workspaces, weight_gradient }
    }

    /// Overwrites the target with the results of all stencils.
    fn correlate(&mut self, source: &[T], weights: &[T], bias: &[T], target: &mut [T]) {
        let target = Shared::new(target);
        for correlation in &mut self.correlations {
            correlation.run(source, weights, bias, &target, &self.workers, &mut self.workspaces);
        }
    }

    fn parameter_gradient(&mut self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        let (weights, bias) = gradient.split_at_mut(self.geometry.weight_elements());
        let (image, windows) = (self.geometry.image, self.geometry.output);
        let (images, of_windows, [height, width]) = if self.geometry.is_transposed {
            (output_gradient, input, image)
        } else {
            (input, output_gradient, windows)
        };
        if let Some(weight_gradient) = &mut self.weight_gradient {
            weight_gradient.run(images, of_windows, weights, &self.workers);
        }
        let pixels = height * width;
        let filters = bias.len();
        self.workers.chunks(bias, 1, |filter, bias| {
            let channels = output_gradient.chunks_exact(pixels).skip(filter).step_by(filters);
            bias[0] = T::narrow(channels.map(|channel| sum(channel, T::widen)).sum());
        });
    }
}

impl<T: Real> Operation<T> for Convolution<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            ConvPass::Forward => {
                let ([input, parameters], [output]) = operands.into_arrays()?;
                let (weights, bias) = parameters.split_at(self.geometry.weight_elements());
                self.correlate(input, weights, bias, output);
            }
            ConvPass::Backward => {
                let ([input, parameters, output_gradient], [input_gradient, gradient]) =
                    operands.into_arrays()?;
                let weights = &parameters[..self.geometry.weight_elements()];
                self.correlate(output_gradient, weights, &[], input_gradient);
                self.parameter_gradient(input, output_gradient, gradient);
            }
            ConvPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.into_arrays()?;
                self.parameter_gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}

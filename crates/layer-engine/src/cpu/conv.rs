use std::ops::Range;

use gemm::Parallelism;

use super::Real;
use super::gemm::{Matrix, MatrixMut, Update, multiply};
use super::im2col::Geometry;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Pieces into which the samples are cut, at most, for the gradient of the parameters. Their sums are rounded apart
/// and added in order, so the cut must not depend on the number of threads.
const PIECES: usize = 8;

/// Fewest samples of a piece: adding a piece's sum costs as much as a small sample.
const PIECE_SAMPLES: usize = 2;

/// Which of a convolution's passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConvPass {
    Forward,
    Backward,
    BackwardParameters,
}

/// A convolution: for each sample and group a product of the weights with the columns of the image.
#[derive(Debug)]
pub(super) struct Convolution<T> {
    geometry: Geometry,
    samples: usize,
    pass: ConvPass,
    workers: Workers,
    slots: Vec<Slot<T>>,
}

/// The workspace of one worker.
#[derive(Debug)]
struct Slot<T> {
    columns: Vec<T>,
    /// Parameter gradients of a piece.
    gradient: Vec<T>,
}

impl<T: Real> Convolution<T> {
    pub(super) fn new(
        geometry: Geometry,
        bias: bool,
        samples: usize,
        pass: ConvPass,
        workers: &Workers,
    ) -> Self {
        let parameters = match (pass, bias) {
            (ConvPass::Forward, _) => 0,
            (_, true) => geometry.weight_elements() + geometry.out_channels,
            (_, false) => geometry.weight_elements(),
        };
        let slot = || Slot {
            columns: vec![T::zero(); geometry.column_elements()],
            gradient: vec![T::zero(); parameters],
        };
        let slots = (0..workers.threads().min(samples)).map(|_| slot()).collect();
        Self { geometry, samples, pass, workers: workers.clone(), slots }
    }

    /// Samples a slot, where each sample is computed on its own.
    fn share(&self) -> usize {
        self.samples.div_ceil(self.slots.len().max(1))
    }

    fn forward(&mut self, input: &[T], parameters: &[T], output: &mut [T]) {
        let share = self.share();
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let (weight, bias) = parameters.split_at(geometry.weight_elements());
        self.workers.chunk_pairs((output, share * result), (&mut self.slots, 1), |index, outputs, slot| {
            let inputs = input[index * share * image..].chunks_exact(image);
            for (input, output) in inputs.zip(outputs.chunks_exact_mut(result)) {
                forward_sample(geometry, input, weight, bias, output, &mut slot[0].columns);
            }
        });
    }

    fn input_gradient(&mut self, parameters: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let share = self.share();
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let weight = &parameters[..geometry.weight_elements()];
        let slots = (&mut self.slots[..], 1);
        self.workers.chunk_pairs((input_gradient, share * image), slots, |index, gradients, slot| {
            let outputs = output_gradient[index * share * result..].chunks_exact(result);
            for (output, input) in outputs.zip(gradients.chunks_exact_mut(image)) {
                input_gradient_sample(geometry, weight, output, input, &mut slot[0].columns);
            }
        });
    }

    fn parameter_gradient(&mut self, input: &[T], output_gradient: &[T], gradient: &mut [T]) {
        gradient.fill(T::zero());
        let geometry = &self.geometry;
        let (image, result) = (geometry.input_elements(), geometry.output_elements());
        let piece = self.samples.div_ceil(PIECES).max(PIECE_SAMPLES);
        let mut first = 0;
        while first < self.samples {
            let slots_used = (self.samples - first).div_ceil(piece).min(self.slots.len());
            let wave = &mut self.slots[..slots_used];
            self.workers.chunks(wave, 1, |index, slot| {
                let Slot { columns, gradient } = &mut slot[0];
                gradient.fill(T::zero());
                let start = first + index * piece;
                let inputs = input[start * image..].chunks_exact(image);
                let outputs = output_gradient[start * result..].chunks_exact(result);
                for (input, output) in inputs.zip(outputs).take(piece) {
                    parameter_gradient_sample(geometry, input, output, gradient, columns);
                }
            });
            for slot in wave {
                gradient.iter_mut().zip(&slot.gradient).for_each(|(sum, &part)| *sum += part);
            }
            first += slots_used * piece;
        }
    }
}

impl<T: Real> Operation<T> for Convolution<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            ConvPass::Forward => {
                let ([input, parameters], [output]) = operands.exactly()?;
                self.forward(input, parameters, output);
            }
            ConvPass::Backward => {
                let ([input, parameters, output_gradient], [input_gradient, gradient]) =
                    operands.exactly()?;
                self.input_gradient(parameters, output_gradient, input_gradient);
                self.parameter_gradient(input, output_gradient, gradient);
            }
            ConvPass::BackwardParameters => {
                let ([input, output_gradient], [gradient]) = operands.exactly()?;
                self.parameter_gradient(input, output_gradient, gradient);
            }
        }
        Ok(())
    }
}

/// The part of an image, of the output or of the weights that belongs to a group.
fn group(elements: usize, groups: usize, index: usize) -> Range<usize> {
    let size = elements / groups;
    index * size..(index + 1) * size
}

fn forward_sample<T: Real>(
    geometry: &Geometry,
    input: &[T],
    weight: &[T],
    bias: &[T],
    output: &mut [T],
    columns: &mut [T],
) {
    let (patch, windows) = (geometry.patch(), geometry.windows());
    let channels = geometry.out_channels / geometry.groups;
    output.chunks_exact_mut(windows).zip(bias).for_each(|(channel, &bias)| channel.fill(bias));
    let mode = if bias.is_empty() { Update::Overwrite } else { Update::Accumulate };
    for index in 0..geometry.groups {
        let image = &input[group(input.len(), geometry.groups, index)];
        let weight = Matrix::new(&weight[group(weight.len(), geometry.groups, index)], channels, patch);
        let output_range = group(output.len(), geometry.groups, index);
        let output = &mut output[output_range];
        for rows in geometry.blocks() {
            let block = rows.len() * geometry.out_width;
            let target = &mut output[rows.start * geometry.out_width..];
            let target = MatrixMut::with_stride(target, channels, block, windows);
            let columns = columns_of(geometry, image, &rows, columns);
            multiply(target, mode, weight, Matrix::new(columns, patch, block), Parallelism::None);
        }
    }
}

fn input_gradient_sample<T: Real>(
    geometry: &Geometry,
    weight: &[T],
    output_gradient: &[T],
    input_gradient: &mut [T],
    columns: &mut [T],
) {
    let (patch, windows) = (geometry.patch(), geometry.windows());
    let channels = geometry.out_channels / geometry.groups;
    if !geometry.is_pointwise() {
        input_gradient.fill(T::zero());
    }
    for index in 0..geometry.groups {
        let weight = &weight[group(weight.len(), geometry.groups, index)];
        let weight = Matrix::new(weight, channels, patch).transposed();
        let output = &output_gradient[group(output_gradient.len(), geometry.groups, index)];
        let input_range = group(input_gradient.len(), geometry.groups, index);
        let image = &mut input_gradient[input_range];
        for rows in geometry.blocks() {
            let block = rows.len() * geometry.out_width;
            let output = &output[rows.start * geometry.out_width..];
            let output = Matrix::with_stride(output, channels, block, windows);
            if geometry.is_pointwise() {
                let target = MatrixMut::new(image, patch, block);
                multiply(target, Update::Overwrite, weight, output, Parallelism::None);
            } else {
                let columns = &mut columns[..patch * block];
                let target = MatrixMut::new(columns, patch, block);
                multiply(target, Update::Overwrite, weight, output, Parallelism::None);
                geometry.scatter(columns, &rows, image);
            }
        }
    }
}

/// Adds a sample's gradient of the weights and, where the gradient has room for it, of the bias.
fn parameter_gradient_sample<T: Real>(
    geometry: &Geometry,
    input: &[T],
    output_gradient: &[T],
    gradient: &mut [T],
    columns: &mut [T],
) {
    let (patch, windows) = (geometry.patch(), geometry.windows());
    let channels = geometry.out_channels / geometry.groups;
    let (weight, bias) = gradient.split_at_mut(geometry.weight_elements());
    for index in 0..geometry.groups {
        let image = &input[group(input.len(), geometry.groups, index)];
        let output = &output_gradient[group(output_gradient.len(), geometry.groups, index)];
        let weight_range = group(weight.len(), geometry.groups, index);
        let weight = &mut weight[weight_range];
        for rows in geometry.blocks() {
            let block = rows.len() * geometry.out_width;
            let output = &output[rows.start * geometry.out_width..];
            let output = Matrix::with_stride(output, channels, block, windows);
            let columns = columns_of(geometry, image, &rows, columns);
            let columns = Matrix::new(columns, patch, block).transposed();
            let target = MatrixMut::new(&mut *weight, channels, patch);
            multiply(target, Update::Accumulate, output, columns, Parallelism::None);
        }
    }
    for (bias, channel) in bias.iter_mut().zip(output_gradient.chunks_exact(windows)) {
        *bias += channel.iter().fold(T::zero(), |sum, &gradient| sum + gradient);
    }
}

/// The columns of a range of output rows: gathered, or the image itself.
fn columns_of<'a, T: Real>(
    geometry: &Geometry,
    image: &'a [T],
    rows: &Range<usize>,
    columns: &'a mut [T],
) -> &'a [T] {
    if geometry.is_pointwise() {
        return image;
    }
    let columns = &mut columns[..geometry.patch() * rows.len() * geometry.out_width];
    geometry.gather(image, rows, columns);
    columns
}

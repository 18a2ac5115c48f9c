//! Maximum pooling of images.

use std::ops::Range;

use layer_graph::{Layer, Pool2d};

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Pass of a maximum pooling, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MaxPoolPass {
    /// Computes the output, and saves the indices of the maxima.
    Forward,
    /// Computes the output only.
    Infer,
    /// Computes the gradient of the input.
    Backward,
}

/// Maximum pooling. Saves the index of each maximum in its window, the first one of equal maxima,
/// as a number that is exact in single precision.
#[derive(Debug)]
pub(super) struct MaxPool<T> {
    windows: MaxWindows,
    pass: MaxPoolPass,
    /// Indices of the maxima during evaluation, when they are not saved.
    indices: Vec<T>,
}

impl<T: Real> MaxPool<T> {
    /// Creates a pass over `samples` samples. Returns `None` if the layer's shapes are not images.
    pub(super) fn new(
        layer: &Layer,
        pool: &Pool2d,
        samples: usize,
        pass: MaxPoolPass,
        workers: &Workers,
    ) -> Option<Self> {
        let (_, height, width) = layer.input_shapes().first()?.as_image()?;
        let (channels, out_height, out_width) = layer.output_shape().as_image()?;
        let [rows, columns] = [(0, height, out_height), (1, width, out_width)].map(|(axis, size, count)| {
            (0..count).map(|index| MaxWindow::new(pool, axis, size, index)).collect()
        });
        let windows = MaxWindows {
            kernel: pool.kernel,
            stride: pool.stride,
            padding: pool.padding,
            image: [height, width],
            rows,
            columns,
            workers: workers.clone(),
        };
        let kept = if pass == MaxPoolPass::Infer { samples * channels * windows.count() } else { 0 };
        Some(Self { windows, pass, indices: vec![T::zero(); kept] })
    }
}

/// Windows of a channel of an image.
#[derive(Debug)]
struct MaxWindows {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    /// `[height, width]` of the image.
    image: [usize; 2],
    rows: Vec<MaxWindow>,
    columns: Vec<MaxWindow>,
    workers: Workers,
}

/// A window along one axis.
#[derive(Debug)]
struct MaxWindow {
    /// Rows or columns of the image in the window.
    inside: Range<usize>,
    /// Offset in the kernel of the first of them.
    offset: usize,
}

impl MaxWindow {
    fn new(pool: &Pool2d, axis: usize, size: usize, index: usize) -> Self {
        let (start, padding) = (index * pool.stride[axis], pool.padding[axis]);
        let first = start.max(padding);
        let end = (start + pool.kernel[axis]).min(size + padding).max(first);
        Self { inside: first - padding..end - padding, offset: first - start }
    }
}

impl MaxWindows {
    fn image_elements(&self) -> usize {
        self.image[0] * self.image[1]
    }

    fn count(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Returns the number of channels in a unit of work of one thread.
    fn grain(&self) -> usize {
        (super::elementwise::GRAIN / self.image_elements()).max(1)
    }

    /// Computes the maxima of one channel and their indices.
    fn maxima<T: Real>(&self, image: &[T], output: &mut [T], indices: &mut [T]) {
        let [_, width] = self.image;
        let mut results = output.iter_mut().zip(indices);
        for rows in &self.rows {
            let lines = &image[rows.inside.start * width..rows.inside.end * width];
            for (columns, (output, kept)) in self.columns.iter().zip(&mut results) {
                let mut best = T::neg_infinity();
                // If nothing is larger than minus infinity, the first element that is not padding
                // is the maximum.
                let mut index_in_window = rows.offset * self.kernel[1] + columns.offset;
                let mut base = index_in_window;
                for line in lines.chunks_exact(width) {
                    for (offset, &value) in line[columns.inside.clone()].iter().enumerate() {
                        // Branches would be mispredicted.
                        let larger = (value > best) | value.is_nan();
                        best = if larger { value } else { best };
                        index_in_window = if larger { base + offset } else { index_in_window };
                    }
                    base += self.kernel[1];
                }
                *output = best;
                *kept = T::narrow(index_in_window as f64);
            }
        }
    }

    fn forward<T: Real>(&self, input: &[T], output: &mut [T], saved: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.count(), self.grain());
        let chunk = grain * windows;
        self.workers.chunk_pairs((output, chunk), (saved, chunk), |index, output, saved| {
            let images = input[index * grain * image..].chunks_exact(image);
            let results = output.chunks_exact_mut(windows).zip(saved.chunks_exact_mut(windows));
            for (image, (output, saved)) in images.zip(results) {
                self.maxima(image, output, saved);
            }
        });
    }

    fn input_gradient<T: Real>(&self, saved: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.count(), self.grain());
        self.workers.chunks(input_gradient, grain * image, |index, input_gradient| {
            let start = index * grain * windows;
            let channels =
                saved[start..].chunks_exact(windows).zip(output_gradient[start..].chunks_exact(windows));
            for (image, (indices, gradients)) in input_gradient.chunks_exact_mut(image).zip(channels) {
                image.fill(T::zero());
                let mut windows = indices.iter().zip(gradients);
                for row in 0..self.rows.len() {
                    let top = (row * self.stride[0]).wrapping_sub(self.padding[0]);
                    for (column, (index_in_window, &gradient)) in (0..self.columns.len()).zip(&mut windows) {
                        let index_in_window = index_in_window.widen() as usize;
                        let left = (column * self.stride[1]).wrapping_sub(self.padding[1]);
                        let row = top.wrapping_add(index_in_window / self.kernel[1]);
                        let column = left.wrapping_add(index_in_window % self.kernel[1]);
                        // An index that the forward pass did not write may lie outside the image.
                        // It gets no gradient.
                        if let Some(element) =
                            image.get_mut(row.wrapping_mul(self.image[1]).wrapping_add(column))
                        {
                            *element += gradient;
                        }
                    }
                }
            }
        });
    }
}

impl<T: Real> Operation<T> for MaxPool<T> {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        match self.pass {
            MaxPoolPass::Forward => {
                let ([input], [output, saved]) = operands.into_arrays()?;
                self.windows.forward(input, output, saved);
            }
            MaxPoolPass::Infer => {
                let ([input], [output]) = operands.into_arrays()?;
                self.windows.forward(input, output, &mut self.indices);
            }
            MaxPoolPass::Backward => {
                let ([saved, output_gradient], [input_gradient]) = operands.into_arrays()?;
                self.windows.input_gradient(saved, output_gradient, input_gradient);
            }
        }
        Ok(())
    }
}

use std::ops::Range;

use layer_graph::{Layer, Pool2d};

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// The largest element of each window. Saves where in its window it was, the first one where several are equal, as a
/// number that is exact in single precision.
#[derive(Debug)]
pub(super) struct MaxPool {
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
    /// Size of the image, `[height, width]`.
    image: [usize; 2],
    /// Windows in each direction.
    windows: [usize; 2],
    backward: bool,
    workers: Workers,
}

impl MaxPool {
    /// `None` when the layer's shapes are not images.
    pub(super) fn new(layer: &Layer, pool: &Pool2d, backward: bool, workers: &Workers) -> Option<Self> {
        let (_, height, width) = layer.input_shapes().first()?.as_image()?;
        let (_, out_height, out_width) = layer.output_shape().as_image()?;
        Some(Self {
            kernel: pool.kernel,
            stride: pool.stride,
            padding: pool.padding,
            image: [height, width],
            windows: [out_height, out_width],
            backward,
            workers: workers.clone(),
        })
    }

    fn image_elements(&self) -> usize {
        self.image[0] * self.image[1]
    }

    fn window_count(&self) -> usize {
        self.windows[0] * self.windows[1]
    }

    /// Channels of images that one thread works on at a time.
    fn grain(&self) -> usize {
        (super::elementwise::GRAIN / self.image_elements()).max(1)
    }

    /// The image's rows or columns in a window, and the kernel's offset at the first of them.
    fn window(&self, axis: usize, index: usize) -> (Range<usize>, usize) {
        let start = index * self.stride[axis];
        let first = start.max(self.padding[axis]);
        let end = (start + self.kernel[axis]).min(self.image[axis] + self.padding[axis]).max(first);
        (first - self.padding[axis]..end - self.padding[axis], first - start)
    }

    /// Calls `found` with the index, the maximum and the maximum's place of every window of one channel.
    fn maxima<T: Real>(&self, image: &[T], mut found: impl FnMut(usize, T, usize)) {
        let width = self.image[1];
        for out_row in 0..self.windows[0] {
            let (rows, row_offset) = self.window(0, out_row);
            for out_column in 0..self.windows[1] {
                let (columns, column_offset) = self.window(1, out_column);
                let mut best = T::neg_infinity();
                let mut place = row_offset * self.kernel[1] + column_offset;
                for row in rows.clone() {
                    let base = (row - rows.start + row_offset) * self.kernel[1] + column_offset;
                    let seen = &image[row * width + columns.start..row * width + columns.end];
                    for (offset, &value) in seen.iter().enumerate() {
                        if value > best || value.is_nan() {
                            best = value;
                            place = base + offset;
                        }
                    }
                }
                found(out_row * self.windows[1] + out_column, best, place);
            }
        }
    }

    fn forward<T: Real>(&self, input: &[T], output: &mut [T], saved: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.window_count(), self.grain());
        let chunk = grain * windows;
        self.workers.chunk_pairs((output, chunk), (saved, chunk), |index, output, saved| {
            let images = input[index * grain * image..].chunks_exact(image);
            let results = output.chunks_exact_mut(windows).zip(saved.chunks_exact_mut(windows));
            for (image, (output, saved)) in images.zip(results) {
                self.maxima(image, |window, best, place| {
                    output[window] = best;
                    saved[window] = T::narrow(place as f64);
                });
            }
        });
    }

    fn infer<T: Real>(&self, input: &[T], output: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.window_count(), self.grain());
        self.workers.chunks(output, grain * windows, |index, output| {
            let images = input[index * grain * image..].chunks_exact(image);
            for (image, output) in images.zip(output.chunks_exact_mut(windows)) {
                self.maxima(image, |window, best, _| output[window] = best);
            }
        });
    }

    fn input_gradient<T: Real>(&self, saved: &[T], output_gradient: &[T], input_gradient: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.window_count(), self.grain());
        self.workers.chunks(input_gradient, grain * image, |index, input_gradient| {
            let start = index * grain * windows;
            let channels =
                saved[start..].chunks_exact(windows).zip(output_gradient[start..].chunks_exact(windows));
            for (image, (places, gradients)) in input_gradient.chunks_exact_mut(image).zip(channels) {
                image.fill(T::zero());
                for (window, (&place, &gradient)) in places.iter().zip(gradients).enumerate() {
                    let element = self.element(window, place.widen() as usize);
                    // A place that the forward pass did not write may lie outside; it gets no gradient.
                    if let Some(element) = image.get_mut(element) {
                        *element += gradient;
                    }
                }
            }
        });
    }

    /// The image element at a place of a window.
    fn element(&self, window: usize, place: usize) -> usize {
        let row = window / self.windows[1] * self.stride[0] + place / self.kernel[1];
        let column = window % self.windows[1] * self.stride[1] + place % self.kernel[1];
        let row = row.wrapping_sub(self.padding[0]);
        row.wrapping_mul(self.image[1]).wrapping_add(column).wrapping_sub(self.padding[1])
    }
}

impl<T: Real> Operation<T> for MaxPool {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        if self.backward {
            let ([saved, output_gradient], [input_gradient]) = operands.exactly()?;
            self.input_gradient(saved, output_gradient, input_gradient);
        } else if operands.writes.len() == 1 {
            let ([input], [output]) = operands.exactly()?;
            self.infer(input, output);
        } else {
            let ([input], [output, saved]) = operands.exactly()?;
            self.forward(input, output, saved);
        }
        Ok(())
    }
}

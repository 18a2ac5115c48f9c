//! Average pooling of images.

use std::ops::Range;

use layer_graph::{Layer, Pool2d};

use super::Real;
use super::operation::{Operands, Operation};
use super::sums::sum;
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Forward or backward pass of an average pooling with fixed or adaptive windows.
#[derive(Debug)]
pub(super) struct AvgPool {
    /// `[height, width]` of the image.
    image: [usize; 2],
    rows: Vec<AvgWindow>,
    columns: Vec<AvgWindow>,
    backward: bool,
    workers: Workers,
}

/// A window along one axis.
#[derive(Debug)]
struct AvgWindow {
    /// Rows or columns of the image in the window.
    inside: Range<usize>,
    /// Reciprocal of the window's length, including padding that is counted.
    weight: f64,
}

impl AvgPool {
    /// Creates a pass with windows of a fixed size. Padding counts as zeros or is not counted.
    /// `backward` selects the input gradient instead of the output. Returns `None` if the layer's
    /// shapes are not images.
    pub(super) fn fixed(layer: &Layer, pool: &Pool2d, backward: bool, workers: &Workers) -> Option<Self> {
        Self::new(layer, backward, workers, |axis, index, size, _| {
            let start = index * pool.stride[axis];
            let end = (start + pool.kernel[axis]).saturating_sub(pool.padding[axis]).min(size);
            let start = start.saturating_sub(pool.padding[axis]).min(end);
            let counted = if pool.count_padding { pool.kernel[axis] } else { end - start };
            AvgWindow { inside: start..end, weight: 1.0 / counted as f64 }
        })
    }

    /// Creates a pass with windows that divide the image as evenly as possible: from `floor(i *
    /// size / windows)` to `ceil((i + 1) * size / windows)`. `backward` selects the input gradient
    /// instead of the output. Returns `None` if the layer's shapes are not images.
    pub(super) fn adaptive(layer: &Layer, backward: bool, workers: &Workers) -> Option<Self> {
        Self::new(layer, backward, workers, |_, index, size, windows| {
            let inside = index * size / windows..((index + 1) * size).div_ceil(windows);
            let weight = 1.0 / inside.len() as f64;
            AvgWindow { inside, weight }
        })
    }

    /// `window` is called with the axis, the index of the window, the size of the image and the
    /// number of windows along the axis.
    fn new(
        layer: &Layer,
        backward: bool,
        workers: &Workers,
        window: impl Fn(usize, usize, usize, usize) -> AvgWindow,
    ) -> Option<Self> {
        let (_, height, width) = layer.input_shapes().first()?.as_image()?;
        let (_, out_height, out_width) = layer.output_shape().as_image()?;
        Some(Self {
            image: [height, width],
            rows: (0..out_height).map(|index| window(0, index, height, out_height)).collect(),
            columns: (0..out_width).map(|index| window(1, index, width, out_width)).collect(),
            backward,
            workers: workers.clone(),
        })
    }

    fn image_elements(&self) -> usize {
        self.image[0] * self.image[1]
    }

    fn window_count(&self) -> usize {
        self.rows.len() * self.columns.len()
    }

    /// Returns the number of channels in a unit of work of one thread.
    fn grain(&self) -> usize {
        (super::elementwise::GRAIN / self.image_elements()).max(1)
    }

    /// Returns the weight of the window if there is only one and it covers the whole image.
    fn whole(&self) -> Option<f64> {
        let ([row], [column]) = (&self.rows[..], &self.columns[..]) else { return None };
        let whole = [row.inside.len(), column.inside.len()] == self.image;
        whole.then_some(row.weight * column.weight)
    }

    fn forward<T: Real>(&self, input: &[T], output: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.window_count(), self.grain());
        self.workers.chunks(output, grain * windows, |index, output| {
            let images = input[index * grain * image..].chunks_exact(image);
            if let Some(weight) = self.whole() {
                let means = images.map(|image| T::narrow(sum(image, T::widen) * weight));
                output.iter_mut().zip(means).for_each(|(to, mean)| *to = mean);
                return;
            }
            for (image, output) in images.zip(output.chunks_exact_mut(windows)) {
                for (row, means) in self.rows.iter().zip(output.chunks_exact_mut(self.columns.len())) {
                    means.fill(T::zero());
                    for line in image.chunks_exact(self.image[1]).take(row.inside.end).skip(row.inside.start)
                    {
                        for (sum, column) in means.iter_mut().zip(&self.columns) {
                            line[column.inside.clone()].iter().for_each(|&value| *sum += value);
                        }
                    }
                    for (mean, column) in means.iter_mut().zip(&self.columns) {
                        *mean *= T::narrow(row.weight * column.weight);
                    }
                }
            }
        });
    }

    fn input_gradient<T: Real>(&self, output_gradient: &[T], input_gradient: &mut [T]) {
        let (image, windows, grain) = (self.image_elements(), self.window_count(), self.grain());
        self.workers.chunks(input_gradient, grain * image, |index, input_gradient| {
            let gradients = output_gradient[index * grain * windows..].chunks_exact(windows);
            for (image, gradients) in input_gradient.chunks_exact_mut(image).zip(gradients) {
                image.fill(T::zero());
                for (row, gradients) in self.rows.iter().zip(gradients.chunks_exact(self.columns.len())) {
                    let lines = image.chunks_exact_mut(self.image[1]);
                    for line in lines.take(row.inside.end).skip(row.inside.start) {
                        for (&gradient, column) in gradients.iter().zip(&self.columns) {
                            let share = gradient * T::narrow(row.weight * column.weight);
                            line[column.inside.clone()].iter_mut().for_each(|element| *element += share);
                        }
                    }
                }
            }
        });
    }
}

impl<T: Real> Operation<T> for AvgPool {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([read], [write]) = operands.into_arrays()?;
        if self.backward {
            self.input_gradient(read, write);
        } else {
            self.forward(read, write);
        }
        Ok(())
    }
}

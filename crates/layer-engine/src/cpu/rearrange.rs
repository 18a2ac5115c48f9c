//! Layers that rearrange the elements of a sample.

use std::ops::Range;

use layer_graph::{Layer, Pad};

use super::Real;
use super::elementwise::{GRAIN, memory_bound_workers};
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Permutation of the dimensions of each sample.
#[derive(Debug)]
pub(super) struct Permutation {
    /// For each element of an output sample, the index of its element of the input sample.
    sources: Vec<usize>,
    workers: Workers,
}

impl Permutation {
    /// Creates the permutation of samples of dimensions `dims` whose output dimension `i` is input
    /// dimension `order[i]`. Returns `None` if `order` does not permute `dims`.
    pub(super) fn new(dims: &[usize], order: &[usize], workers: &Workers) -> Option<Self> {
        // Distance between neighbours along each dimension of the input.
        let strides: Vec<usize> = (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect();
        let mut sources = vec![0];
        for dim in order {
            let (&size, &stride) = (dims.get(*dim)?, strides.get(*dim)?);
            sources = sources.iter().flat_map(|start| (0..size).map(move |i| start + i * stride)).collect();
        }
        (sources.len() == dims.iter().product::<usize>()).then(|| Self { sources, workers: workers.clone() })
    }

    /// Returns the order that undoes `order`: the index at which each dimension occurs in it.
    pub(super) fn inverse(order: &[usize]) -> Vec<usize> {
        let mut inverse: Vec<usize> = (0..order.len()).collect();
        inverse.sort_by_key(|&dim| order[dim]);
        inverse
    }
}

impl<T: Real> Operation<T> for Permutation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.into_arrays()?;
        let sample = self.sources.len();
        self.workers.chunks(output, sample, |index, output| {
            let input = &input[index * sample..(index + 1) * sample];
            output.iter_mut().zip(&self.sources).for_each(|(to, &source)| *to = input[source]);
        });
        Ok(())
    }
}

/// Selection of one index of the outermost dimension, such as one position of a sequence. Elements
/// of a sample are counted from 0.
#[derive(Debug)]
pub(super) struct Selection {
    /// Number of elements of an input sample.
    pub(super) whole: usize,
    /// Number of elements with the selected index.
    pub(super) part: usize,
    /// Index in the sample of the first element with the selected index.
    pub(super) start: usize,
    /// Whether the input gradient is computed, which is zero outside of the selection, instead of
    /// the output.
    pub(super) backward: bool,
}

impl<T: Real> Operation<T> for Selection {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let range = self.start..self.start + self.part;
        let ([read], [write]) = operands.into_arrays()?;
        if self.backward {
            write.fill(T::zero());
            for (to, from) in write.chunks_exact_mut(self.whole).zip(read.chunks_exact(self.part)) {
                to[range.clone()].copy_from_slice(from);
            }
        } else {
            for (to, from) in write.chunks_exact_mut(self.part).zip(read.chunks_exact(self.whole)) {
                to.copy_from_slice(&from[range.clone()]);
            }
        }
        Ok(())
    }
}

/// Padding of images with zeros.
#[derive(Debug)]
pub(super) struct Padding {
    /// `[height, width]` of the images without and with padding.
    image: [usize; 2],
    padded: [usize; 2],
    /// Rows and columns of the padded image that are those of the image.
    inside: [Range<usize>; 2],
    /// Whether the input gradient is computed instead of the output.
    backward: bool,
    workers: Workers,
}

impl Padding {
    /// Creates a pass. Returns `None` if the layer's shapes are not images.
    pub(super) fn new(layer: &Layer, pad: &Pad, backward: bool, workers: &Workers) -> Option<Self> {
        let (_, height, width) = layer.input_shapes().first()?.as_image()?;
        let (_, padded_height, padded_width) = layer.output_shape().as_image()?;
        let [top, left] = pad.before;
        Some(Self {
            image: [height, width],
            padded: [padded_height, padded_width],
            inside: [top..top + height, left..left + width],
            backward,
            workers: workers.clone(),
        })
    }
}

impl<T: Real> Operation<T> for Padding {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([read], [write]) = operands.into_arrays()?;
        let [rows, columns] = &self.inside;
        let [image, padded] = [self.image, self.padded].map(|[height, width]| height * width);
        let (width, padded_width) = (self.image[1], self.padded[1]);
        let [from, to] = if self.backward { [padded, image] } else { [image, padded] };
        let grain = (GRAIN / padded).max(1);
        memory_bound_workers(&self.workers, write.len()).chunks(write, grain * to, |index, write| {
            let images = read[index * grain * from..].chunks_exact(from);
            for (to, from) in write.chunks_exact_mut(to).zip(images) {
                if self.backward {
                    let lines = from.chunks_exact(padded_width).skip(rows.start);
                    for (to, from) in to.chunks_exact_mut(width).zip(lines) {
                        to.copy_from_slice(&from[columns.clone()]);
                    }
                } else {
                    to.fill(T::zero());
                    let lines = to.chunks_exact_mut(padded_width).skip(rows.start);
                    for (to, from) in lines.zip(from.chunks_exact(width)) {
                        to[columns.clone()].copy_from_slice(from);
                    }
                }
            }
        });
        Ok(())
    }
}

//! Layers that rearrange the elements of a sample.

use super::Real;
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

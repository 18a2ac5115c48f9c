//! Layers that move a sample's elements.

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Another order of a sample's dimensions.
#[derive(Debug)]
pub(super) struct Permutation {
    /// For each element of a sample of the output the element of the input that it is.
    sources: Vec<usize>,
    workers: Workers,
}

impl Permutation {
    /// The output's dimension `i` is the input's dimension `order[i]`. `None` when `order` does not permute `dims`.
    pub(super) fn new(dims: &[usize], order: &[usize], workers: &Workers) -> Option<Self> {
        // The distance of neighbours along each dimension of the input.
        let strides: Vec<usize> = (0..dims.len()).map(|dim| dims[dim + 1..].iter().product()).collect();
        let mut sources = vec![0];
        for dim in order {
            let (&size, &stride) = (dims.get(*dim)?, strides.get(*dim)?);
            sources = sources.iter().flat_map(|start| (0..size).map(move |i| start + i * stride)).collect();
        }
        (sources.len() == dims.iter().product::<usize>()).then(|| Self { sources, workers: workers.clone() })
    }

    /// What undoes an order.
    pub(super) fn inverse(order: &[usize]) -> Vec<usize> {
        let mut inverse: Vec<usize> = (0..order.len()).collect();
        inverse.sort_by_key(|&dim| order[dim]);
        inverse
    }
}

impl<T: Real> Operation<T> for Permutation {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let ([input], [output]) = operands.exactly()?;
        let sample = self.sources.len();
        self.workers.chunks(output, sample, |index, output| {
            let input = &input[index * sample..(index + 1) * sample];
            output.iter_mut().zip(&self.sources).for_each(|(to, &source)| *to = input[source]);
        });
        Ok(())
    }
}

/// One position along the outermost dimension.
#[derive(Debug)]
pub(super) struct Selection {
    /// Elements of a sample of the input.
    pub(super) whole: usize,
    /// Elements of a position.
    pub(super) part: usize,
    /// The position's first element.
    pub(super) start: usize,
    pub(super) backward: bool,
}

impl<T: Real> Operation<T> for Selection {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let range = self.start..self.start + self.part;
        let ([read], [write]) = operands.exactly()?;
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

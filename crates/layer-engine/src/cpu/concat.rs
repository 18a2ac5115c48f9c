//! Concatenation of buffers, sample by sample.

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Concatenation of the samples of several inputs. Channels are the outermost dimension of a
/// sample, so the part of each input is contiguous.
#[derive(Debug)]
pub(super) struct Concatenate {
    /// Number of elements per sample of each input.
    pub(super) parts: Vec<usize>,
    /// Threads that the samples are distributed over.
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for Concatenate {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let [output] = writes else { return Ok(()) };
        let whole: usize = self.parts.iter().sum();
        self.workers.chunks(output, whole, |index, sample| {
            let mut start = 0;
            for (&part, input) in self.parts.iter().zip(reads) {
                sample[start..start + part].copy_from_slice(&input[index * part..(index + 1) * part]);
                start += part;
            }
        });
        Ok(())
    }
}

/// Division of the samples of a concatenated tensor into their parts: the backward pass of
/// [`Concatenate`].
#[derive(Debug)]
pub(super) struct Split {
    /// Number of elements per sample of each output.
    pub(super) parts: Vec<usize>,
    /// Threads that the samples are distributed over.
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for Split {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let [joined] = reads else { return Ok(()) };
        let whole: usize = self.parts.iter().sum();
        let mut start = 0;
        for (&part, output) in self.parts.iter().zip(writes) {
            self.workers.chunks(output, part, |index, to| {
                let sample = &joined[index * whole..(index + 1) * whole];
                to.copy_from_slice(&sample[start..start + part]);
            });
            start += part;
        }
        Ok(())
    }
}

//! Concatenation of buffers, row by row. A *row* is a sample, or a position of a sequence.

use super::Real;
use super::operation::{Operands, Operation};
use super::workers::Workers;
use crate::{EngineError, LaunchContext};

/// Concatenation of the rows of several inputs. Channels are the outermost dimension of an image,
/// so the part of each input is contiguous.
#[derive(Debug)]
pub(super) struct Concatenate {
    /// Number of elements per row of each input.
    pub(super) parts: Vec<usize>,
    /// Threads that the rows are distributed over.
    pub(super) workers: Workers,
}

impl<T: Real> Operation<T> for Concatenate {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let [output] = writes else { return Ok(()) };
        let whole: usize = self.parts.iter().sum();
        self.workers.chunks(output, whole, |index, row| {
            let mut start = 0;
            for (&part, input) in self.parts.iter().zip(reads) {
                row[start..start + part].copy_from_slice(&input[index * part..(index + 1) * part]);
                start += part;
            }
        });
        Ok(())
    }
}

/// Division of the rows of a concatenated tensor into their parts: the backward pass of
/// [`Concatenate`].
#[derive(Debug)]
pub(super) struct Split {
    /// Number of elements per row of each output.
    pub(super) parts: Vec<usize>,
    /// Threads that the rows are distributed over.
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
                let row = &joined[index * whole..(index + 1) * whole];
                to.copy_from_slice(&row[start..start + part]);
            });
            start += part;
        }
        Ok(())
    }
}

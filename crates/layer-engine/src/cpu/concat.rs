use super::Real;
use super::operation::{Operands, Operation};
use crate::{EngineError, LaunchContext};

/// Joins the samples of several inputs: channels are a sample's outermost dimension, so each input's part of a sample
/// lies in one piece.
#[derive(Debug)]
pub(super) struct Join {
    /// Elements of a sample of each input.
    pub(super) parts: Vec<usize>,
}

impl<T: Real> Operation<T> for Join {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let [output] = writes else { return Ok(()) };
        let whole: usize = self.parts.iter().sum();
        let mut start = 0;
        for (&part, input) in self.parts.iter().zip(reads) {
            for (sample, from) in output.chunks_exact_mut(whole).zip(input.chunks_exact(part)) {
                sample[start..start + part].copy_from_slice(from);
            }
            start += part;
        }
        Ok(())
    }
}

/// Takes the samples of a joined tensor apart: the backward of [`Join`].
#[derive(Debug)]
pub(super) struct Part {
    /// Elements of a sample of each output.
    pub(super) parts: Vec<usize>,
}

impl<T: Real> Operation<T> for Part {
    fn run(&mut self, operands: Operands<'_, '_, T>, _: &LaunchContext) -> Result<(), EngineError> {
        let Operands { reads, writes, .. } = operands;
        let [joined] = reads else { return Ok(()) };
        let whole: usize = self.parts.iter().sum();
        let mut start = 0;
        for (&part, output) in self.parts.iter().zip(writes) {
            for (sample, to) in joined.chunks_exact(whole).zip(output.chunks_exact_mut(part)) {
                to.copy_from_slice(&sample[start..start + part]);
            }
            start += part;
        }
        Ok(())
    }
}

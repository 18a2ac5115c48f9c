//! Prepared kernels of the libtorch engine.

use super::Failure;
use super::buffer::TorchBuffer;
use super::launch::{Launch, LaunchFunction};
use crate::{EngineError, LaunchContext};

/// A prepared kernel of a [`TorchEngine`](crate::TorchEngine): its computation, and the lengths of
/// its operands.
pub struct TorchKernel {
    name: String,
    reads: Vec<usize>,
    writes: Vec<usize>,
    operation: LaunchFunction,
}

impl TorchKernel {
    /// Creates a kernel. `reads` and `writes` have the number of elements of each operand; `name`
    /// is for error messages.
    pub(super) fn new(
        name: String,
        reads: Vec<usize>,
        writes: Vec<usize>,
        operation: LaunchFunction,
    ) -> Self {
        Self { name, reads, writes, operation }
    }

    /// Checks the operands and runs the computation on them in the current stream.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match in number or length; the error of the
    /// computation.
    pub(super) fn launch(
        &mut self,
        reads: &[&TorchBuffer],
        writes: &mut [&mut TorchBuffer],
        context: &LaunchContext,
    ) -> Result<(), Failure> {
        self.check("reads", &self.reads, reads.iter().map(|buffer| buffer.len()))?;
        self.check("writes", &self.writes, writes.iter().map(|buffer| buffer.len()))?;
        tch::no_grad(|| (self.operation)(&mut Launch { reads, writes, context }))
    }

    fn check(
        &self,
        side: &str,
        expected: &[usize],
        got: impl ExactSizeIterator<Item = usize>,
    ) -> Result<(), Failure> {
        let mismatch = |operand: String, expected, got| {
            Failure(EngineError::Operand { kernel: self.name.clone(), operand, expected, got })
        };
        if got.len() != expected.len() {
            return Err(mismatch(side.into(), expected.len(), got.len()));
        }
        match expected.iter().zip(got).enumerate().find(|(_, (expected, got))| *expected != got) {
            Some((index, (&expected, got))) => Err(mismatch(format!("{side}[{index}]"), expected, got)),
            None => Ok(()),
        }
    }
}

impl std::fmt::Debug for TorchKernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TorchKernel")
            .field("name", &self.name)
            .field("reads", &self.reads)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

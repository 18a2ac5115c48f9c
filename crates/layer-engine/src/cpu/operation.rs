//! Kernels of the CPU engine: an operation with the lengths of its operands.

use std::mem;
use std::ops::DerefMut;

use crate::{EngineError, LaunchContext, Pass};

/// The computation of a kernel, with its workspace.
pub(super) trait Operation<T>: Send + Sync {
    /// Computes all operands that are written. The number and the lengths of the operands have been
    /// checked.
    ///
    /// # Errors
    /// [`EngineError::Label`] or [`EngineError::Token`] for an invalid label or token.
    fn run(&mut self, operands: Operands<'_, '_, T>, context: &LaunchContext) -> Result<(), EngineError>;
}

/// Pass of a layer that saves values for the backward pass, by its results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SavingPass {
    /// Computes the output, and saves the values.
    Forward,
    /// Computes the output only.
    Infer,
    /// Computes the gradients of the input and of the parameters.
    Backward,
    /// Computes the gradients of the parameters only.
    BackwardParameters,
}

impl SavingPass {
    /// Returns the pass of a layer's pass.
    pub(super) fn of(pass: Pass) -> Self {
        match pass {
            Pass::Backward => Self::Backward,
            Pass::BackwardParameters => Self::BackwardParameters,
            Pass::Infer => Self::Infer,
            _ => Self::Forward,
        }
    }
}

/// Normalisation with learned parameters that saves statistics, by its passes.
pub(super) trait Normalisation<T> {
    /// Normalises the input by the parameters, and saves the statistics.
    fn forward(&self, reads: [&[T]; 2], writes: [&mut [T]; 2]);

    /// Normalises the input by the parameters.
    fn infer(&self, input: &[T], parameters: &[T], output: &mut [T]);

    /// Computes the gradient of the input. `reads` are the input, the parameters, the statistics
    /// and the gradient of the output.
    fn input_gradient(&self, reads: [&[T]; 4], input_gradient: &mut [T]);

    /// Computes the gradient of the parameters. `reads` are the input, the statistics and the
    /// gradient of the output.
    fn parameter_gradient(&mut self, reads: [&[T]; 3], gradient: &mut [T]);
}

/// Runs a pass of a normalisation.
///
/// # Errors
/// [`EngineError`] if the numbers of operands are not those of the pass.
pub(super) fn run_normalisation<T>(
    norm: &mut impl Normalisation<T>,
    pass: SavingPass,
    operands: Operands<'_, '_, T>,
) -> Result<(), EngineError> {
    match pass {
        SavingPass::Forward => {
            let (reads, writes) = operands.into_arrays()?;
            norm.forward(reads, writes);
        }
        SavingPass::Infer => {
            let ([input, parameters], [output]) = operands.into_arrays()?;
            norm.infer(input, parameters, output);
        }
        SavingPass::Backward => {
            let (reads, [input_gradient, gradient]) = operands.into_arrays()?;
            let [input, _, saved, output_gradient] = reads;
            norm.input_gradient(reads, input_gradient);
            norm.parameter_gradient([input, saved, output_gradient], gradient);
        }
        SavingPass::BackwardParameters => {
            let (reads, [gradient]) = operands.into_arrays()?;
            norm.parameter_gradient(reads, gradient);
        }
    }
    Ok(())
}

/// Buffers of one launch, in the order of the kernel's `Signature` or `KernelSpec`.
pub(super) struct Operands<'a, 'b, T> {
    /// Name of the kernel, for error messages.
    pub(super) kernel: &'a str,
    /// Buffers that are read.
    pub(super) reads: &'a [&'a [T]],
    /// Buffers that are written or updated in place.
    pub(super) writes: &'a mut [&'b mut [T]],
}

/// `R` slices to read and `W` slices to write.
type Slices<'a, T, const R: usize, const W: usize> = ([&'a [T]; R], [&'a mut [T]; W]);

impl<'a, T> Operands<'a, '_, T> {
    /// Returns the buffers as `R` slices to read and `W` slices to write.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the numbers of buffers are not `R` and `W`.
    pub(super) fn into_arrays<const R: usize, const W: usize>(
        self,
    ) -> Result<Slices<'a, T, R, W>, EngineError> {
        let (read_count, write_count) = (self.reads.len(), self.writes.len());
        let reads: &[&[T]; R] =
            self.reads.try_into().map_err(|_| mismatch(self.kernel, "reads", R, read_count))?;
        let writes: &mut [&mut [T]; W] =
            self.writes.try_into().map_err(|_| mismatch(self.kernel, "writes", W, write_count))?;
        Ok((*reads, writes.each_mut().map(|buffer| &mut **buffer)))
    }
}

/// A prepared kernel of a [`CpuEngine`](crate::CpuEngine), with its workspace.
///
/// A kernel can be sent to another thread and dropped there.
pub struct CpuKernel<T: 'static> {
    pub(super) name: String,
    /// Number of scalars of each operand that is read.
    pub(super) reads: Vec<usize>,
    /// Number of scalars of each operand that is written.
    pub(super) writes: Vec<usize>,
    pub(super) operation: Box<dyn Operation<T>>,
    /// Memory for the operands of a launch, as slices. Empty between launches.
    read_slices: Vec<&'static [T]>,
    write_slices: Vec<&'static mut [T]>,
}

impl<T: 'static> CpuKernel<T> {
    /// Creates a kernel. `reads` and `writes` have the number of scalars of each operand; `name` is
    /// for error messages.
    pub(super) fn new(
        name: String,
        reads: Vec<usize>,
        writes: Vec<usize>,
        operation: Box<dyn Operation<T>>,
    ) -> Self {
        let (read_slices, write_slices) = (Vec::with_capacity(reads.len()), Vec::with_capacity(writes.len()));
        Self { name, reads, writes, operation, read_slices, write_slices }
    }

    /// Checks the operands and runs the operation on them.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match in number or length; the error of the
    /// operation.
    pub(super) fn launch<B: DerefMut<Target = [T]>>(
        &mut self,
        reads: &[&B],
        writes: &mut [&mut B],
        context: &LaunchContext,
    ) -> Result<(), EngineError> {
        check(&self.name, "reads", &self.reads, reads.iter().map(|buffer| buffer.len()))?;
        check(&self.name, "writes", &self.writes, writes.iter().map(|buffer| buffer.len()))?;
        let mut read_slices: Vec<&[T]> = mem::take(&mut self.read_slices);
        let mut write_slices: Vec<&mut [T]> = mem::take(&mut self.write_slices);
        read_slices.extend(reads.iter().map(|buffer| &***buffer));
        write_slices.extend(writes.iter_mut().map(|buffer| &mut ***buffer));
        let operands = Operands { kernel: &self.name, reads: &read_slices, writes: &mut write_slices };
        let result = self.operation.run(operands, context);
        // A collection in place: the memory is kept, for slices of another lifetime.
        self.read_slices = read_slices.into_iter().map_while(|_| None).collect();
        self.write_slices = write_slices.into_iter().map_while(|_| None).collect();
        result
    }
}

impl<T> std::fmt::Debug for CpuKernel<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CpuKernel")
            .field("name", &self.name)
            .field("reads", &self.reads)
            .field("writes", &self.writes)
            .finish_non_exhaustive()
    }
}

fn check(
    kernel: &str,
    side: &str,
    expected: &[usize],
    got: impl ExactSizeIterator<Item = usize>,
) -> Result<(), EngineError> {
    if got.len() != expected.len() {
        return Err(mismatch(kernel, side, expected.len(), got.len()));
    }
    match expected.iter().zip(got).enumerate().find(|(_, (expected, got))| *expected != got) {
        Some((index, (&expected, got))) => Err(mismatch(kernel, &format!("{side}[{index}]"), expected, got)),
        None => Ok(()),
    }
}

/// Returns the error for an operand with `got` instead of `expected` elements, or for a wrong
/// number of operands if `operand` is `reads` or `writes`.
pub(super) fn mismatch(kernel: &str, operand: &str, expected: usize, got: usize) -> EngineError {
    EngineError::Operand { kernel: kernel.into(), operand: operand.into(), expected, got }
}

//! Chains of elementwise operations that one launch computes.

use super::kernel_builder::KernelBuilder;
use super::{CudaEngine, CudaKernel, NAME, rearrange};
use crate::{EngineError, Signature};

/// Direction of a rectifier (`ReLU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rectifier {
    /// Replaces negative values by zero.
    Forward,
    /// Replaces a gradient by zero where the output of the forward pass is not positive.
    Backward,
}

/// Chain of elementwise operations: a sum, then a rectifier, then copies of the result. The values
/// between them are not stored. The result has the same bits as the separate kernels'.
///
/// `reads` are the terms of the sum, which are added in order, and with [`Rectifier::Backward`] the
/// output of its forward pass. `writes` are the copies. All operands have the same number of
/// elements. An operand that is written may be the same memory as one that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementwiseChain {
    /// Number of elements of each operand.
    pub elements: usize,
    /// Number of terms, from 1 to [`MAX_OPERANDS`](Self::MAX_OPERANDS).
    pub terms: usize,
    /// The rectifier that the sum passes through; `None` if there is none.
    pub rectifier: Option<Rectifier>,
    /// Number of copies, from 1 to [`MAX_OPERANDS`](Self::MAX_OPERANDS).
    pub copies: usize,
}

impl ElementwiseChain {
    /// Maximum number of terms, and of copies.
    pub const MAX_OPERANDS: usize = 4;
}

impl CudaEngine {
    /// Prepares the kernel of a chain of elementwise operations, which is one launch.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the number of terms or copies is out of range or an operand is
    /// too large; [`EngineError::Cuda`] if CUDA fails.
    pub fn prepare_chain(&self, chain: &ElementwiseChain) -> Result<CudaKernel, EngineError> {
        let counts = 1..=ElementwiseChain::MAX_OPERANDS;
        if !counts.contains(&chain.terms) || !counts.contains(&chain.copies) {
            let problem = format!(
                "a chain has 1 to {} terms and copies, not {} and {}",
                ElementwiseChain::MAX_OPERANDS,
                chain.terms,
                chain.copies
            );
            return Err(EngineError::Library { engine: NAME, problem });
        }
        let reads = chain.terms + usize::from(chain.rectifier == Some(Rectifier::Backward));
        let signature = Signature { reads: Vec::new(), writes: Vec::new() };
        let operands = |count| vec![chain.elements; count];
        let (reads, writes) = (operands(reads), operands(chain.copies));
        let mut builder = KernelBuilder::new(&self.device, "Chain".into(), signature, reads, writes)?;
        rearrange::chain(&mut builder, chain)?;
        Ok(builder.finish())
    }
}

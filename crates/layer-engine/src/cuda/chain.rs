//! Chains of elementwise operations that one launch computes.

use crate::Storage;

/// Direction of a rectifier (`ReLU`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rectifier {
    /// Replaces negative values by zero.
    Forward,
    /// Replaces a gradient by zero where the output of the forward pass is not positive.
    Backward,
}

/// Chain of elementwise operations: a sum, then a rectifier, then copies of the result. The values
/// between them are not stored. In single precision, the result has the same bits as the separate
/// kernels'. In 16 bits, it is rounded once.
///
/// `reads` are the terms of the sum, which are added in order, and with [`Rectifier::Backward`] the
/// output of its forward pass. `writes` are the copies. All operands have the same number of
/// elements. An operand that is written may be the same memory as one that is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElementwiseChain {
    /// Number of elements of each operand.
    pub elements: usize,
    /// Number format of the operands.
    pub storage: Storage,
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

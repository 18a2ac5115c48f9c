//! Shapes of attention.

use crate::numerics::positive;
use crate::{Error, Result};

/// Size of an element of input and output, bf16, in bytes.
pub(super) const ELEMENT_BYTES: usize = 2;

/// Pass of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AttentionPass {
    /// The output and the statistics, from the input.
    Forward,
    /// The gradient of the input, from the input, the output, the statistics and the gradient of
    /// the output.
    Backward,
}

/// Shape of scaled dot-product attention of sequences to themselves. Its tensors are contiguous:
///
/// | tensor | dimensions | elements |
/// |---|---|---|
/// | input and its gradient | samples, positions, 3 (queries, keys, values), heads, width | bf16 |
/// | output and its gradient | samples, positions, heads, width | bf16 |
/// | statistics | samples, heads, positions | f32 |
///
/// Products of queries and keys are scaled by 1 / sqrt(width). Statistics are the logarithms of the
/// sums of their exponentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AttentionShape {
    /// Number of samples.
    pub samples: usize,
    /// Number of positions of a sequence.
    pub positions: usize,
    /// Number of heads.
    pub heads: usize,
    /// Number of features of a head.
    pub width: usize,
    /// Whether a position attends only to itself and to earlier ones.
    pub causal: bool,
    /// Pass.
    pub pass: AttentionPass,
}

/// Order of the sums of a query's gradient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sums {
    /// The same in each execution. The gradients of all products are stored in the workspace.
    Ordered,
    /// Any, by atomic additions.
    Atomic,
}

impl AttentionShape {
    /// Returns the numbers of samples, positions, heads and features of a head.
    ///
    /// # Errors
    /// [`Error::Invalid`] if one is zero, or the tensors exceed any memory.
    pub(super) fn dimensions(&self) -> Result<[i64; 4]> {
        let numbers = [
            ("samples", self.samples),
            ("positions", self.positions),
            ("heads", self.heads),
            ("features of a head", self.width),
        ];
        for (name, value) in numbers {
            positive::<i32>(&format!("attention with {name}"), value)?;
        }
        self.operand_bytes()?;
        let pairs = self.positions.checked_mul(self.rows());
        if pairs.is_none_or(|pairs| i64::try_from(pairs).is_err()) {
            return Err(Error::Invalid("the scores of attention exceed any memory".to_owned()));
        }
        Ok(numbers.map(|(_, value)| (value as u64).cast_signed()))
    }

    /// Returns the number of statistics.
    pub(super) fn rows(&self) -> usize {
        self.samples * self.heads * self.positions
    }

    /// Returns the size of input, output and statistics, and of the gradients of a backward pass,
    /// in bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] if they exceed any memory.
    pub fn operand_bytes(&self) -> Result<usize> {
        let tensors = match self.pass {
            AttentionPass::Forward => 4,
            AttentionPass::Backward => 8,
        };
        let of_row = self.width.checked_mul(tensors * ELEMENT_BYTES).and_then(|row| row.checked_add(4));
        let factors = [self.samples, self.heads, self.positions];
        factors
            .into_iter()
            .try_fold(of_row.unwrap_or(usize::MAX), usize::checked_mul)
            .filter(|bytes| i64::try_from(*bytes).is_ok())
            .ok_or_else(|| Error::Invalid("the operands of attention exceed any memory".to_owned()))
    }
}

//! Decoded instructions.

use super::Op;

/// Decoded instruction. The meaning of `a` to `e` and `extra` depends on the operation. For
/// operations of the tables in this module they are slots: indices into the registers of their
/// kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    /// Operation.
    pub(crate) op: Op,
    /// Slot of the guard predicate, with bit [`NEGATED`](Self::NEGATED) set if the guard is
    /// negated. Instructions without a guard have [`ALWAYS`](super::Registers::ALWAYS).
    pub(crate) guard: u16,
    /// Slot of the result.
    pub(crate) d: u16,
    /// Slot of the first operand.
    pub(crate) a: u16,
    /// Slot of the second operand.
    pub(crate) b: u16,
    /// Slot of the third operand. For comparisons: slot of the predicate to combine with.
    pub(crate) c: u16,
    /// Slot of the fourth operand, or flags. For comparisons: 1 if the predicate `c` is negated.
    pub(crate) e: u16,
    /// Further data of the operation, such as a packed conversion, or an index into the program's
    /// memory accesses.
    pub(crate) extra: u32,
}

impl Instruction {
    /// Bit of `guard` that is set if the guard is negated.
    pub(crate) const NEGATED: u16 = 1 << 15;
    /// Placeholder for an absent register.
    pub(crate) const NONE: u16 = u16::MAX;

    /// Creates an unguarded instruction with all operands 0.
    pub(crate) fn new(op: Op) -> Self {
        Self { op, guard: 0, d: 0, a: 0, b: 0, c: 0, e: 0, extra: 0 }
    }
}

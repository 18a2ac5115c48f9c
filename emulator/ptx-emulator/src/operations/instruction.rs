//! Decoded instructions. A lane is one of the 32 threads of a warp.

use super::Op;

/// Decoded instruction. The meaning of `a` to `e` and `extra` depends on the operation. For
/// operations on registers, `a`, `b`, `c` and `e` are the slots of the operands and `d` is the slot
/// of the result: indices among the registers of their width, or among the predicates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    /// Operation, which determines the meaning of the other fields.
    pub(crate) op: Op,
    /// Slot of the guard predicate: lanes in which it is false do not execute the instruction. Bit
    /// [`NEGATED`](Self::NEGATED) is set if the guard is negated. Instructions without a guard have
    /// [`ALWAYS`](super::Registers::ALWAYS).
    pub(crate) guard: u16,
    /// Slot of the result.
    pub(crate) d: u16,
    /// Slot of the first operand.
    pub(crate) a: u16,
    /// Slot of the second operand.
    pub(crate) b: u16,
    /// Slot of the third operand. For comparisons: slot of the predicate that the result is
    /// combined with.
    pub(crate) c: u16,
    /// Slot of the fourth operand, or flags. For comparisons: 1 if the predicate `c` is negated.
    pub(crate) e: u16,
    /// Further data of the operation, such as packed modifiers, the target of a branch, or an index
    /// into the memory accesses of the kernel.
    pub(crate) extra: u32,
}

impl Instruction {
    /// Bit of `guard` that is set if the guard is negated.
    pub(crate) const NEGATED: u16 = 1 << 15;
    /// Placeholder for the slot of an operand that the instruction does not have.
    pub(crate) const NONE: u16 = u16::MAX;

    /// Creates an unguarded instruction with all operands 0.
    pub(crate) fn new(op: Op) -> Self {
        Self { op, guard: 0, d: 0, a: 0, b: 0, c: 0, e: 0, extra: 0 }
    }
}

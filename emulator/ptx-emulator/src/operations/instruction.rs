//! Decoded instructions.

use super::Op;

/// Instruction. The meaning of `a` to `e` and `extra` depends on the operation; most are register
/// numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    pub(crate) op: Op,
    /// Register of the guard predicate, combined with [`NEGATED`](Self::NEGATED).
    pub(crate) guard: u16,
    pub(crate) d: u16,
    pub(crate) a: u16,
    pub(crate) b: u16,
    pub(crate) c: u16,
    pub(crate) e: u16,
    pub(crate) extra: u32,
}

impl Instruction {
    /// Bit of a negated guard.
    pub(crate) const NEGATED: u16 = 1 << 15;
    /// Placeholder for an absent register.
    pub(crate) const NONE: u16 = u16::MAX;

    pub(crate) fn new(op: Op) -> Self {
        Self { op, guard: 0, d: 0, a: 0, b: 0, c: 0, e: 0, extra: 0 }
    }
}

//! Decoder: translates a parsed kernel into instructions with numbered registers.

mod access;
mod compare;
mod convert;
mod function;
mod names;
mod operands;
mod slots;
mod special;
mod supported;
mod warp;

pub(crate) use access::{Access, AtomicOperation, Atomics};
pub(crate) use convert::{Conversion, Number};
pub(crate) use function::program;
pub(crate) use names::Globals;
pub(crate) use special::Special;
pub use supported::instruction_forms;
pub(crate) use warp::{NEGATED, ReduceOperation, ShuffleMode, VoteMode};

use crate::execute::Op;

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

/// Location of an instruction in the PTX text and in the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: u32,
    /// Number of the source file and line in it.
    pub(crate) source: Option<(u64, u32)>,
}

/// Decoded kernel.
pub(crate) struct Program {
    pub(crate) code: Vec<Instruction>,
    /// Location of each instruction.
    pub(crate) places: Vec<Place>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) words: usize,
    pub(crate) doubles: usize,
    pub(crate) predicates: usize,
    /// Registers with constants.
    pub(crate) constant_words: Vec<(u16, u32)>,
    pub(crate) constant_doubles: Vec<(u16, u64)>,
    /// Registers initialised with values of the thread or the launch.
    pub(crate) specials: Vec<(u16, Special)>,
    /// Offset and size of each parameter in bytes.
    pub(crate) parameters: Vec<(usize, usize)>,
    pub(crate) shared_bytes: u64,
    pub(crate) local_bytes: u64,
    pub(crate) max_threads: Option<u64>,
    pub(crate) required_block: Option<[u64; 3]>,
}

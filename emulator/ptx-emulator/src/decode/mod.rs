//! Decoder: translates a parsed kernel into instructions with numbered registers.

mod access;
mod compare;
mod convert;
mod function;
mod operands;
mod slots;
mod special;
mod supported;
mod symbols;
mod warp;

pub(crate) use access::{Access, AtomicOperands, AtomicOperation};
pub(crate) use convert::{Conversion, NumberType};
pub(crate) use function::program;
pub(crate) use special::Special;
pub use supported::instruction_forms;
pub(crate) use symbols::Globals;
pub(crate) use warp::{NEGATED, ReduceOperation, ShuffleMode, VoteMode};

use crate::operations::Instruction;

/// Location of an instruction in the PTX text and in the source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLocation {
    pub(crate) line: u32,
    /// Number of the source file and line in it.
    pub(crate) source: Option<(u64, u32)>,
}

/// Decoded kernel.
pub(crate) struct Program {
    pub(crate) code: Vec<Instruction>,
    /// Location of each instruction.
    pub(crate) locations: Vec<SourceLocation>,
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

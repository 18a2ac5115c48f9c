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
    /// Line of the PTX text, from 1.
    pub(crate) line: u32,
    /// Number of the source file and line in it.
    pub(crate) source: Option<(u64, u32)>,
}

/// Decoded kernel.
pub(crate) struct Program {
    /// Instructions in the order of the PTX text. Indices of instructions refer to it.
    pub(crate) code: Vec<Instruction>,
    /// Location of each instruction.
    pub(crate) locations: Vec<SourceLocation>,
    /// Operands of the memory accesses. Instructions refer to them by index.
    pub(crate) accesses: Vec<Access>,
    /// Number of 32-bit registers, including those of 16-bit values.
    pub(crate) words: usize,
    /// Number of 64-bit registers.
    pub(crate) doubles: usize,
    /// Number of predicates, including the reserved ones.
    pub(crate) predicates: usize,
    /// 32-bit registers that hold constants: slot and value.
    pub(crate) constant_words: Vec<(u16, u32)>,
    /// 64-bit registers that hold constants: slot and value.
    pub(crate) constant_doubles: Vec<(u16, u64)>,
    /// Registers initialised with values of the thread or the launch.
    pub(crate) specials: Vec<(u16, Special)>,
    /// Offset and size of each parameter in bytes.
    pub(crate) parameters: Vec<(usize, usize)>,
    /// Shared memory that a block needs without its dynamic part, in bytes.
    pub(crate) shared_bytes: u64,
    /// Local memory of a thread, in bytes.
    pub(crate) local_bytes: u64,
    /// Maximum number of threads of a block (product of `.maxntid`), or `None` without a limit.
    pub(crate) max_threads: Option<u64>,
    /// Required dimensions of a block (`.reqntid`), or `None` if any are accepted.
    pub(crate) required_block: Option<[u64; 3]>,
}

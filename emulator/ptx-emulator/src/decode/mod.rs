//! Decoder: translates a parsed kernel into instructions with numbered registers.
//!
//! A warp has three groups of registers: 32-bit registers, which also hold 16-bit values, 64-bit
//! registers, and predicates. The *slot* of a register is its index in its group. The decoder packs
//! modifiers of an instruction into its field `extra`.

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
pub(crate) use function::decode_kernel;
pub(crate) use special::SpecialRegister;
pub use supported::instruction_forms;
pub(crate) use symbols::Globals;
pub(crate) use warp::{NEGATED, ReduceOperation, ShuffleMode, VoteMode};

use crate::operations::Instruction;

/// Location of an instruction in the PTX text and in the source file that it was compiled from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SourceLocation {
    /// Line of the PTX text, from 1.
    pub(crate) line: u32,
    /// Number of the source file (`.file`) and line in it, from 1. `None` if no `.loc` directive
    /// precedes the instruction.
    pub(crate) source: Option<(u64, u32)>,
}

/// Decoded kernel.
pub(crate) struct DecodedKernel {
    /// Instructions in the order of the PTX text. Indices of instructions refer to it.
    pub(crate) code: Vec<Instruction>,
    /// Location of each instruction, in the order of `code`.
    pub(crate) locations: Vec<SourceLocation>,
    /// Loads, stores and atomic operations. Their instructions have the index in the field `extra`.
    pub(crate) accesses: Vec<Access>,
    /// Number of 32-bit registers of a warp, including those of 16-bit values.
    pub(crate) words: usize,
    /// Number of 64-bit registers of a warp.
    pub(crate) words64: usize,
    /// Number of predicates of a warp, including those reserved by the emulator.
    pub(crate) predicates: usize,
    /// 32-bit registers that hold constants: slot and value.
    pub(crate) constant_words: Vec<(u16, u32)>,
    /// 64-bit registers that hold constants: slot and value.
    pub(crate) constant_words64: Vec<(u16, u64)>,
    /// Registers initialised at launch: slot and initial value.
    pub(crate) specials: Vec<(u16, SpecialRegister)>,
    /// Offset in parameter memory and size of each parameter, in bytes, in the declared order.
    pub(crate) parameters: Vec<(usize, usize)>,
    /// Shared memory that a block needs without its dynamic part, in bytes.
    pub(crate) shared_bytes: u64,
    /// Local memory of a thread, in bytes.
    pub(crate) local_bytes: u64,
    /// Maximum number of threads of a block (product of `.maxntid`), or `None` without a limit.
    pub(crate) max_threads: Option<u64>,
    /// Required number of threads of a block along x, y and z (`.reqntid`), or `None` if any number
    /// is accepted.
    pub(crate) required_block: Option<[u64; 3]>,
}

//! Parser of PTX text: functions and variables that it declares. Lines are counted from 1, and
//! names are parts of the text.

mod body;
mod declarations;
mod lexer;
mod reader;
mod variables;

pub(crate) use declarations::parse;

use crate::operations::Kind;

/// Declarations of a PTX text.
#[derive(Default)]
pub(crate) struct File<'a> {
    /// Variables in global and constant memory.
    pub(crate) globals: Vec<Variable<'a>>,
    /// Variables in shared memory that are declared outside functions.
    pub(crate) shared: Vec<Variable<'a>>,
    /// Kernels (`.entry`).
    pub(crate) entries: Vec<Entry<'a>>,
    /// Number and name of each source file (`.file`), to which `.loc` refers.
    pub(crate) sources: Vec<(u64, &'a str)>,
}

/// Kernel (`.entry`).
pub(crate) struct Entry<'a> {
    /// Name of the kernel.
    pub(crate) name: &'a str,
    /// Parameters in the order of their declarations.
    pub(crate) parameters: Vec<Variable<'a>>,
    /// Maximum number of threads of a block (product of `.maxntid`), or `None` without a limit.
    pub(crate) max_threads: Option<u64>,
    /// Required number of threads of a block along x, y and z (`.reqntid`), or `None` if any number
    /// is accepted.
    pub(crate) required_block: Option<[u64; 3]>,
    /// Statements of the body, without its outer braces.
    pub(crate) body: Vec<Statement<'a>>,
}

/// State space of a variable or an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    /// Generic address: global, shared or local memory, depending on the address.
    Generic,
    /// Memory of the device (`.global`).
    Global,
    /// Read-only memory of the device (`.const`).
    Constant,
    /// Memory of a block (`.shared`).
    Shared,
    /// Memory of a thread (`.local`).
    Local,
    /// Parameters of the kernel (`.param`).
    Parameter,
}

/// Declared variable or parameter.
pub(crate) struct Variable<'a> {
    /// Line of the declaration.
    pub(crate) line: u32,
    /// State space of the variable.
    pub(crate) space: Space,
    /// Name of the variable.
    pub(crate) name: &'a str,
    /// Alignment in bytes.
    pub(crate) align: u64,
    /// Size in bytes. `None` for `name[]`, a shared variable whose size is set by the launch.
    pub(crate) bytes: Option<u64>,
    /// Initial value of the first bytes; the remaining bytes are zero.
    pub(crate) content: Vec<u8>,
}

/// Element of a function's body.
pub(crate) enum Statement<'a> {
    /// Opening brace of a scope.
    Open,
    /// Closing brace of a scope.
    Close,
    /// Declaration of one register or of several numbered registers.
    Registers {
        /// Line of the declaration.
        line: u32,
        /// Kind of the registers.
        kind: Kind,
        /// Name of the register, or the common prefix of the names.
        name: &'a str,
        /// Number of registers, named `name0`, `name1` and so on. `None` declares one register
        /// `name`.
        count: Option<u64>,
    },
    /// Declaration of a variable in shared or local memory.
    Variable(Variable<'a>),
    /// Label (`name:`), the target of branches.
    Label {
        /// Line of the label.
        line: u32,
        /// Name of the label.
        name: &'a str,
    },
    /// Source line of the following instructions (`.loc`).
    Location {
        /// Number of the source file.
        file: u64,
        /// Line in the source file; 0 if there is none.
        line: u64,
    },
    /// Instruction with its guard.
    Instruction(ParsedInstruction<'a>),
}

/// Instruction of the PTX text.
pub(crate) struct ParsedInstruction<'a> {
    /// Line of the instruction.
    pub(crate) line: u32,
    /// Name of the predicate that guards the instruction (`@p`), and whether it is negated (`@!p`).
    /// `None` if the instruction has no guard.
    pub(crate) guard: Option<(&'a str, bool)>,
    /// Opcode with its modifiers, such as `add.s32`.
    pub(crate) opcode: &'a str,
    /// Operands in the order of the text.
    pub(crate) operands: Vec<Operand<'a>>,
}

/// Operand of the PTX text.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    /// Register, variable, label or `_`, with an added offset in bytes.
    Name(&'a str, i64),
    /// Negated predicate `!p`.
    Not(&'a str),
    /// Integer, in two's complement if negative.
    Integer(u64),
    /// Bits of a single-precision number.
    Single(u32),
    /// Bits of a double-precision number.
    Double(u64),
    /// Address `[name + 4]` with its offset in bytes, or without a name a constant address.
    Address(Option<&'a str>, i64),
    /// Vector `{a, b}`.
    Vector(Vec<Operand<'a>>),
    /// Pair `a|p` of a register and a predicate.
    Pair(&'a str, &'a str),
}

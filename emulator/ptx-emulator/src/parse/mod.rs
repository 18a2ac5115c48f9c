//! Parser of PTX text: functions and variables that it declares.

mod body;
mod declarations;
mod lexer;
mod reader;
mod variables;

pub(crate) use declarations::parse;

use crate::operations::Kind;

/// Declarations of a file.
#[derive(Default)]
pub(crate) struct File<'a> {
    /// Variables in global and constant memory.
    pub(crate) globals: Vec<Variable<'a>>,
    /// Variables in shared memory that are declared outside functions.
    pub(crate) shared: Vec<Variable<'a>>,
    /// Kernels (`.entry`).
    pub(crate) entries: Vec<Entry<'a>>,
    /// Names of the source files by number.
    pub(crate) sources: Vec<(u64, &'a str)>,
}

/// Kernel.
pub(crate) struct Entry<'a> {
    /// Name of the kernel.
    pub(crate) name: &'a str,
    /// Parameters in the order of their declarations.
    pub(crate) parameters: Vec<Variable<'a>>,
    /// Maximum number of threads of a block (product of `.maxntid`).
    pub(crate) max_threads: Option<u64>,
    /// Required dimensions of a block (`.reqntid`).
    pub(crate) required_block: Option<[u64; 3]>,
    /// Statements of the body, without its outer braces.
    pub(crate) body: Vec<Statement<'a>>,
}

/// State space of a variable or an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Generic,
    Global,
    Constant,
    Shared,
    Local,
    Parameter,
}

/// Variable or parameter.
pub(crate) struct Variable<'a> {
    /// Line of the declaration.
    pub(crate) line: u32,
    /// State space of the variable.
    pub(crate) space: Space,
    /// Name of the variable.
    pub(crate) name: &'a str,
    /// Alignment in bytes.
    pub(crate) align: u64,
    /// Size in bytes. `None` for `name[]`, whose size is set by the launch.
    pub(crate) bytes: Option<u64>,
    /// Initial bytes; the remaining ones are zero.
    pub(crate) content: Vec<u8>,
}

/// Element of a function's body.
pub(crate) enum Statement<'a> {
    /// Opening brace of a scope.
    Open,
    /// Closing brace of a scope.
    Close,
    /// Declaration of one register, or of `count` numbered registers.
    Registers {
        line: u32,
        kind: Kind,
        name: &'a str,
        count: Option<u64>,
    },
    Variable(Variable<'a>),
    Label {
        line: u32,
        name: &'a str,
    },
    /// `.loc`: number of the source file and line of the following instructions.
    Location {
        file: u64,
        line: u64,
    },
    Instruction(ParsedInstruction<'a>),
}

/// Parsed instruction.
pub(crate) struct ParsedInstruction<'a> {
    /// Line of the instruction.
    pub(crate) line: u32,
    /// Predicate of the guard, and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    /// Opcode with its modifiers, such as `add.s32`.
    pub(crate) opcode: &'a str,
    /// Operands in the order of the text.
    pub(crate) operands: Vec<Operand<'a>>,
}

/// Parsed operand.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    /// Register, variable, label or `_`, with an offset.
    Name(&'a str, i64),
    /// Negated predicate `!p`.
    Not(&'a str),
    Integer(u64),
    /// Bits of a single-precision number.
    Single(u32),
    /// Bits of a double-precision number.
    Double(u64),
    /// Address `[name + 4]`, or a number without a name.
    Address(Option<&'a str>, i64),
    /// Vector `{a, b}`.
    Vector(Vec<Operand<'a>>),
    /// Pair `a|p`.
    Pair(&'a str, &'a str),
}

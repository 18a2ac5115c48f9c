//! PTX text as the functions and variables that it declares.

mod body;
mod lexer;
mod module;
mod reader;

pub(crate) use module::parse;

use crate::execute::Kind;

/// What a file declares.
#[derive(Default)]
pub(crate) struct File<'a> {
    /// Those in global and constant memory.
    pub(crate) globals: Vec<Variable<'a>>,
    /// Those in shared memory, outside of functions.
    pub(crate) shared: Vec<Variable<'a>>,
    pub(crate) entries: Vec<Entry<'a>>,
    /// Source files by their numbers.
    pub(crate) sources: Vec<(u64, &'a str)>,
}

/// A kernel.
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    pub(crate) parameters: Vec<Variable<'a>>,
    /// `.maxntid`, as the number of threads.
    pub(crate) max_threads: Option<u64>,
    /// `.reqntid`
    pub(crate) required_block: Option<[u64; 3]>,
    pub(crate) body: Vec<Statement<'a>>,
}

/// The state space of a variable or an access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Space {
    Generic,
    Global,
    Constant,
    Shared,
    Local,
    Parameter,
}

/// A variable or a parameter.
pub(crate) struct Variable<'a> {
    pub(crate) line: u32,
    pub(crate) space: Space,
    pub(crate) name: &'a str,
    pub(crate) align: u64,
    /// None for `name[]`, which is as long as the launch says.
    pub(crate) bytes: Option<u64>,
    /// The first bytes; all others are zero.
    pub(crate) content: Vec<u8>,
}

/// A piece of a function's body.
pub(crate) enum Statement<'a> {
    /// `{`, which begins a scope.
    Open,
    /// `}`
    Close,
    /// `.reg`: one register, or a family that is counted.
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
    /// `.loc`: the source file's number and the line that what follows comes from.
    Location {
        file: u64,
        line: u64,
    },
    Instruction(Written<'a>),
}

/// An instruction as it is written.
pub(crate) struct Written<'a> {
    pub(crate) line: u32,
    /// The predicate of its guard, and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
}

/// An operand as it is written.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    /// A register, a variable, a label or `_`, with what is added to it.
    Name(&'a str, i64),
    /// `!p`
    Not(&'a str),
    Integer(u64),
    Single(u32),
    Double(u64),
    /// `[name + 4]`, without a name for a number alone.
    Address(Option<&'a str>, i64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `a|p`
    Pair(&'a str, &'a str),
}

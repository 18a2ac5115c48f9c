//! Tables of operations on registers.
//!
//! An operation is applied to the registers of a whole warp. A *lane* is one of the 32 threads of
//! the warp, and in a mask of lanes bit *l* stands for lane *l*. The *slot* of a register is its
//! index among the registers of its width, or among the predicates.
//!
//! A row defines an operation completely: its PTX names, the kinds of its operands, and its effect
//! on one lane. The decoder's lookup and the interpreter's jump table are generated from the rows.

// Rows are written alike, even where a shorter form exists.
#![allow(
    clippy::cast_lossless,
    clippy::precedence,
    clippy::redundant_closure,
    clippy::redundant_closure_for_method_calls
)]

mod apply;
mod carries;
mod comparisons;
mod float;
mod floats;
mod hot;
mod instruction;
mod integer;
mod integers;
mod lanes;
mod moves;
mod registers;
mod vectors;

pub(crate) use float::{Rounding, ftz, narrow, next_down32, next_down64, next_up32, next_up64, saturate};
pub(crate) use instruction::Instruction;
pub(crate) use lanes::{LANES, Words, Words64, merge};
pub(crate) use registers::{Combine, Comparison, Registers};
pub(crate) use vectors::outlined;

use {carries::Carry, comparisons::Compare, floats::Float, hot::Hot, integers::Integer, moves::Transfer};

/// Kind of an operand or a result: a predicate, or the width of a register.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Predicate: one bit for each lane.
    P,
    /// 16 bits, in the low half of a 32-bit register.
    H,
    /// 32 bits.
    W,
    /// 64 bits.
    D,
}

/// Kinds of an operation's result and operands.
pub(crate) struct Shape {
    /// Kind of the result.
    pub(crate) to: Kind,
    /// Kinds of the operands, in the order of the PTX instruction.
    pub(crate) from: &'static [Kind],
    /// Whether it is a comparison (`setp`), whose result may be combined with a predicate, and
    /// which may write the complement to a second predicate.
    pub(crate) compares: bool,
}

/// Operation of an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// Operation of the table of frequent operations.
    Hot(Hot),
    /// Operation of the table of moves, packing, selection and address conversions.
    Transfer(Transfer),
    /// Operation of the table of integer operations.
    Integer(Integer),
    /// Operation of the table of operations with the carry flag.
    Carry(Carry),
    /// Operation of the table of floating-point operations.
    Float(Float),
    /// Comparison (`setp`).
    Compare(Compare),
    /// Branch (`bra`).
    Branch,
    /// End of the executing threads (`exit` and `ret`).
    Exit,
    /// Failure of the kernel (`trap`).
    Trap,
    /// `bar.sync`: barrier of the block at which lanes wait.
    Barrier,
    /// `bar.arrive`: arrival at a barrier of the block without waiting.
    BarrierArrive,
    /// `bar.red`: barrier of the block that reduces a predicate.
    BarrierReduce,
    /// Barrier of lanes of a warp (`bar.warp.sync`).
    WarpBarrier,
    /// Load of a kernel parameter (`ld.param`) that is given by its name.
    LoadParameter,
    /// Load of a part of a kernel parameter (`ld.param`) whose address is in a register.
    LoadParameterAt,
    /// `ld.shared` of 32-bit elements into 32-bit registers, which has a fast path.
    LoadShared,
    /// `ld.global` of 32-bit elements into 32-bit registers, which has a fast path.
    LoadGlobal,
    /// Any other load.
    Load,
    /// `st.shared` of 32-bit elements from 32-bit registers, which has a fast path.
    StoreShared,
    /// `st.global` of 32-bit elements from 32-bit registers, which has a fast path.
    StoreGlobal,
    /// Any other store.
    Store,
    /// Atomic operation on memory (`atom` and `red`).
    Atomic,
    /// Read of a register of another lane (`shfl.sync`).
    Shuffle,
    /// Reduction of a predicate over lanes (`vote.sync`).
    Vote,
    /// Search for lanes with equal values in a register (`match.sync`).
    Match,
    /// Reduction of a register over lanes (`redux.sync`).
    ReduceWarp,
    /// Mask of the executing lanes (`activemask`).
    ActiveLanes,
    /// Read of a clock register, such as `%clock`.
    Clock,
    /// Conversion (`cvt`) that no table contains.
    Convert,
}

/// Returns the operation and the kinds of its operands for a PTX opcode, or `None` if no table has
/// it. Comparisons have no `setp` in their names, and parts of vector moves have names such as
/// `pack b32`.
pub(crate) fn find(form: &str) -> Option<(Op, Shape)> {
    let tables = [Hot::find, Transfer::find, Integer::find, Carry::find, Float::find, Compare::find];
    tables.into_iter().find_map(|find| find(form))
}

/// Returns the names by which [`find`] finds operations, of all tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let tables = [Hot::FORMS, Transfer::FORMS, Integer::FORMS, Carry::FORMS, Float::FORMS, Compare::FORMS];
    tables.into_iter().flatten().copied()
}

/// Defines a table: its name, the compilation of its operations (see [`vectors`]),
/// and rows grouped by the kinds of their operands.
macro_rules! table {
    ($table:ident, $compilation:ident $($run:ident $kinds:tt {
        $($name:ident: $($form:literal)+, $function:expr;)*
    })*) => {
        /// Operations of this table, named after what they compute. The rows give their PTX names.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $table { $($($name,)*)* }

        impl $table {
            /// PTX names of all operations of the table.
            pub(super) const FORMS: &'static [&'static str] = &[$($($($form,)+)*)*];

            /// Returns the operation with the given PTX name and the kinds of its operands.
            pub(super) fn find(form: &str) -> Option<(super::Op, super::Shape)> {
                let found = match form {
                    $($($($form)|+ => (Self::$name, super::shape!($kinds)),)*)*
                    _ => return None,
                };
                Some((super::Op::$table(found.0), found.1))
            }

            /// Executes the operation of `i` in the lanes of `mask`. `simd` selects the vector
            /// instructions of the processor.
            #[inline(always)]
            pub(crate) fn compute<S: pulp::Simd>(
                self,
                simd: S,
                registers: &mut crate::operations::Registers,
                i: &crate::operations::Instruction,
                mask: u32,
            ) {
                match self {
                    $($(Self::$name => $compilation(simd, || $run(registers, i, mask, $function)),)*)*
                }
            }
        }
    };
}

macro_rules! shape {
    ([$to:ident; $($from:ident)+]) => {
        $crate::operations::Shape {
            to: $crate::operations::Kind::$to,
            from: &[$($crate::operations::Kind::$from),+],
            compares: false,
        }
    };
    ([$to:ident; $($from:ident)+; compares]) => {
        $crate::operations::Shape {
            compares: true,
            ..super::shape!([$to; $($from)+])
        }
    };
}

use {shape, table};

const fn signed(value: u32) -> i32 {
    value as i32
}

/// Returns the signed 16-bit number in a register.
const fn short(value: u32) -> i32 {
    value as i16 as i32
}

/// Returns a 16-bit result as a register value.
const fn half(value: u32) -> u32 {
    value & 0xffff
}

const fn wide(value: u32) -> u64 {
    value as u64
}

const fn signed_wide(value: u32) -> i64 {
    value as i32 as i64
}

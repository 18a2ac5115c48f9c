//! What a collective can carry, and how it reduces.

use std::fmt;

/// A number that collectives can move and reduce.
///
/// Sealed: a backend has to know each type, so only this crate implements it (`f32`, `f64`, `i32`, `i64`, `u8`).
pub trait Element: sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// The type's name at run time, compared across ranks.
    const TYPE: ElementType;

    /// Replaces each `accumulator[i]` by `accumulator[i] op input[i]`, as far as the shorter slice reaches.
    ///
    /// Integer sums wrap. The maximum and minimum of a number and a NaN is the number.
    fn accumulate(op: ReduceOp, accumulator: &mut [Self], input: &[Self]);
}

/// An [`Element`] type as a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ElementType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer.
    I64,
    /// Byte.
    U8,
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
        })
    }
}

/// How the ranks' elements become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum.
    Sum,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl fmt::Display for ReduceOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sum => "sum",
            Self::Max => "max",
            Self::Min => "min",
        })
    }
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! element {
    ($type:ident, $name:ident, $sum:expr, $max:expr, $min:expr) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const TYPE: ElementType = ElementType::$name;

            fn accumulate(op: ReduceOp, accumulator: &mut [Self], input: &[Self]) {
                fn each<T: Copy>(accumulator: &mut [T], input: &[T], combine: impl Fn(T, T) -> T) {
                    for (a, b) in accumulator.iter_mut().zip(input) {
                        *a = combine(*a, *b);
                    }
                }
                // One loop for each operation, so that the choice stays out of it and it vectorises.
                match op {
                    ReduceOp::Sum => each(accumulator, input, $sum),
                    ReduceOp::Max => each(accumulator, input, $max),
                    ReduceOp::Min => each(accumulator, input, $min),
                }
            }
        }
    };
}

element!(f32, F32, |a, b| a + b, f32::max, f32::min);
element!(f64, F64, |a, b| a + b, f64::max, f64::min);
element!(i32, I32, i32::wrapping_add, Ord::max, Ord::min);
element!(i64, I64, i64::wrapping_add, Ord::max, Ord::min);
element!(u8, U8, u8::wrapping_add, Ord::max, Ord::min);

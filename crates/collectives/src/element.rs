//! Element types of collectives, and their reductions.

use std::fmt;

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// A number type that collectives can move and reduce: `f32`, `f64`, `i32`, `i64`, `u8`, `f16` or
/// `bf16`.
///
/// The trait is sealed, because every backend must support each type.
pub trait Element: sealed::Sealed + Copy + Default + fmt::Debug + PartialEq + Send + Sync + 'static {
    /// Run-time identifier of the type. The ranks of an operation compare it, because all must pass
    /// the same type.
    const TYPE: ElementType;

    /// Fills `output` with the element-wise reduction of `inputs`, one slice for each rank in the
    /// order of the ranks, up to the length of the shortest slice. Without inputs, `output` does
    /// not change.
    ///
    /// Integer sums wrap. The maximum or minimum of a number and a NaN is the number.
    /// Half-precision sums are accumulated in `f32` and rounded once.
    fn reduce(op: ReduceOp, inputs: &[&[Self]], output: &mut [Self]);
}

/// Run-time identifier of an [`Element`] type.
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
    /// IEEE 754 half precision.
    F16,
    /// Brain float: the upper half of an `f32`.
    Bf16,
}

impl ElementType {
    /// Size of one element in bytes.
    #[must_use]
    pub const fn size_bytes(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F64 => "f64",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::U8 => "u8",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
        })
    }
}

/// Operation that reduces the elements of all ranks at one index to one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// Sum of the elements.
    Sum,
    /// Largest element.
    Max,
    /// Smallest element.
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
    /// Prevents implementations of `Element` outside of this crate.
    #[cfg(not(feature = "nccl"))]
    pub trait Sealed {}

    /// Prevents implementations of `Element` outside of this crate. All elements can be in device
    /// memory.
    #[cfg(feature = "nccl")]
    pub trait Sealed: cuda::Element {}
}

macro_rules! element {
    ($type:ident, $name:ident, $sum:expr, $max:expr, $min:expr) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const TYPE: ElementType = ElementType::$name;

            fn reduce(op: ReduceOp, inputs: &[&[Self]], output: &mut [Self]) {
                let Some((first, others)) = inputs.split_first() else { return };
                let len = shortest(inputs, output);
                let output = &mut output[..len];
                output.copy_from_slice(&first[..len]);
                for input in others {
                    // The match is outside of the loop, so that each loop vectorizes.
                    match op {
                        ReduceOp::Sum => combine_into(output, input, $sum),
                        ReduceOp::Max => combine_into(output, input, $max),
                        ReduceOp::Min => combine_into(output, input, $min),
                    }
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

macro_rules! half_element {
    ($type:ident, $name:ident) => {
        impl sealed::Sealed for $type {}

        impl Element for $type {
            const TYPE: ElementType = ElementType::$name;

            fn reduce(op: ReduceOp, inputs: &[&[Self]], output: &mut [Self]) {
                if inputs.is_empty() {
                    return;
                }
                let len = shortest(inputs, output);
                let mut totals = [0.0_f32; WIDENED_BLOCK];
                for start in (0..len).step_by(WIDENED_BLOCK) {
                    let block = start..len.min(start + WIDENED_BLOCK);
                    let totals = &mut totals[..block.len()];
                    inputs[0][block.clone()].convert_to_f32_slice(totals);
                    for input in &inputs[1..] {
                        let elements = input[block.clone()].iter();
                        let pairs = totals.iter_mut().zip(elements.map(|element| element.to_f32()));
                        match op {
                            ReduceOp::Sum => pairs.for_each(|(total, element)| *total += element),
                            ReduceOp::Max => pairs.for_each(|(total, element)| *total = total.max(element)),
                            ReduceOp::Min => pairs.for_each(|(total, element)| *total = total.min(element)),
                        }
                    }
                    output[block].convert_from_f32_slice(totals);
                }
            }
        }
    };
}

half_element!(f16, F16);
half_element!(bf16, Bf16);

/// Number of half-precision elements that are widened to `f32` at a time.
const WIDENED_BLOCK: usize = 256;

fn shortest<T>(inputs: &[&[T]], output: &[T]) -> usize {
    inputs.iter().map(|input| input.len()).fold(output.len(), usize::min)
}

fn combine_into<T: Copy>(accumulator: &mut [T], input: &[T], combine: impl Fn(T, T) -> T) {
    for (a, b) in accumulator.iter_mut().zip(input) {
        *a = combine(*a, *b);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_stop_at_the_shortest_slice() {
        fn check<T: Element>(one: T, two: T, three: T) {
            assert_eq!(T::TYPE.size_bytes(), size_of::<T>());
            let mut output = [T::default(); 4];
            T::reduce(ReduceOp::Sum, &[&[one, one, one], &[two, two]], &mut output);
            assert_eq!(output, [three, three, T::default(), T::default()]);
            T::reduce(ReduceOp::Max, &[], &mut output);
            assert_eq!(output[0], three);
        }
        check(1.0_f32, 2.0, 3.0);
        check(1_u8, 2, 3);
        check(f16::from_f32(1.0), f16::from_f32(2.0), f16::from_f32(3.0));
        check(1.0_f64, 2.0, 3.0);
    }

    /// Rounding after each term would give 2048.
    #[test]
    fn half_precision_sums_are_rounded_once() {
        let terms = [2048.0, 1.0, 1.0].map(f16::from_f32);
        let mut sum = [f16::ZERO];
        f16::reduce(ReduceOp::Sum, &[&terms[..1], &terms[1..2], &terms[2..]], &mut sum);
        assert_eq!(sum, [f16::from_f32(2050.0)]);
    }
}

//! Conversion of the numbers in a file: sizes, axes and decimals. Sizes are dimensions, strides,
//! paddings and numbers of groups.

/// Maximum accepted dimension, stride or axis. Sums and products of a few such values do not
/// overflow.
const MAX_SIZE: i64 = i32::MAX as i64;

/// Converts a size; `None` if it is negative or exceeds `i32::MAX`.
pub(super) fn size(value: i64) -> Option<usize> {
    usize::try_from(value).ok().filter(|_| value <= MAX_SIZE)
}

/// Converts an axis to a position among `rank` dimensions, from 0. Negative axes count from the
/// end. `None` if there is no such dimension.
pub(super) fn axis(value: i64, rank: usize) -> Option<usize> {
    let from_start = if value < 0 { i64::try_from(rank).ok()?.checked_add(value)? } else { value };
    usize::try_from(from_start).ok().filter(|&place| place < rank)
}

/// Converts a single-precision number to the double nearest to the shortest decimal that denotes
/// it: `1e-5` instead of the exact value of the nearest float.
pub(super) fn shortest_decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

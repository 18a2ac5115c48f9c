//! Conversion of the numbers in a file: sizes, axes and decimals.

/// Maximum accepted dimension, stride or axis. Sums and products of a few such values do not
/// overflow.
const MAX_SIZE: i64 = i32::MAX as i64;

/// Converts a dimension, stride or padding; `None` if it is negative or too large.
pub(super) fn size(value: i64) -> Option<usize> {
    usize::try_from(value).ok().filter(|_| value <= MAX_SIZE)
}

/// Converts an axis to a position among `rank` dimensions. Negative axes count from the end.
pub(super) fn axis(value: i64, rank: usize) -> Option<usize> {
    let from_start = if value < 0 { i64::try_from(rank).ok()?.checked_add(value)? } else { value };
    usize::try_from(from_start).ok().filter(|&place| place < rank)
}

/// Converts a single-precision number to the shortest decimal that denotes it: `1e-5` instead of
/// the exact value of the nearest float.
pub(super) fn shortest_decimal(value: f32) -> f64 {
    value.to_string().parse().unwrap_or(f64::from(value))
}

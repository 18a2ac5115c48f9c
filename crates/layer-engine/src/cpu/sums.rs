//! Reductions of a row in double precision, in an order that depends only on the row's length.

use super::Real;

/// Number of independent partial sums, so that the compiler can vectorise the loop.
const LANES: usize = 16;

/// Returns the sum of a function of each element.
pub(super) fn sum<T: Real>(row: &[T], term: impl Fn(T) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &value)| *lane += term(value));
    }
    lanes.iter_mut().zip(chunks.remainder()).for_each(|(lane, &value)| *lane += term(value));
    lanes.iter().sum()
}

/// Returns the sum of a function of each pair of elements. The rows have the same length.
pub(super) fn sum_of_pairs<T: Real>(a: &[T], b: &[T], term: impl Fn(T, T) -> f64) -> f64 {
    let mut lanes = [0.0; LANES];
    let (mut a, mut b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    for (a, b) in (&mut a).zip(&mut b) {
        lanes.iter_mut().zip(a.iter().zip(b)).for_each(|(lane, (&a, &b))| *lane += term(a, b));
    }
    let rest = a.remainder().iter().zip(b.remainder());
    lanes.iter_mut().zip(rest).for_each(|(lane, (&a, &b))| *lane += term(a, b));
    lanes.iter().sum()
}

/// Returns the largest element. NaN is ignored; the result of an empty row is minus infinity.
pub(super) fn row_max<T: Real>(row: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut lanes = [T::neg_infinity(); LANES];
    let mut chunks = row.chunks_exact(LANES);
    for chunk in &mut chunks {
        lanes.iter_mut().zip(chunk).for_each(|(lane, &value)| *lane = larger(*lane, value));
    }
    chunks.remainder().iter().chain(&lanes).fold(T::neg_infinity(), |all, &value| larger(all, value))
}

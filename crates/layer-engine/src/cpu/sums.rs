//! Reductions of a row in double precision, in an order that depends only on the row's length.

use super::Real;

/// Number of independent partial results (sums or maxima), so that the compiler can vectorise the
/// loop.
const PARTIAL_RESULTS: usize = 16;

/// Returns the sum of a function of each element.
pub(super) fn sum<T: Real>(row: &[T], term: impl Fn(T) -> f64) -> f64 {
    let mut partials = [0.0; PARTIAL_RESULTS];
    let mut chunks = row.chunks_exact(PARTIAL_RESULTS);
    for chunk in &mut chunks {
        partials.iter_mut().zip(chunk).for_each(|(partial, &value)| *partial += term(value));
    }
    partials.iter_mut().zip(chunks.remainder()).for_each(|(partial, &value)| *partial += term(value));
    partials.iter().sum()
}

/// Returns the sum of a function of each pair of elements. The rows have the same length.
pub(super) fn sum_of_pairs<T: Real>(a: &[T], b: &[T], term: impl Fn(T, T) -> f64) -> f64 {
    let mut partials = [0.0; PARTIAL_RESULTS];
    let (mut a, mut b) = (a.chunks_exact(PARTIAL_RESULTS), b.chunks_exact(PARTIAL_RESULTS));
    for (a, b) in (&mut a).zip(&mut b) {
        partials.iter_mut().zip(a.iter().zip(b)).for_each(|(partial, (&a, &b))| *partial += term(a, b));
    }
    let rest = a.remainder().iter().zip(b.remainder());
    partials.iter_mut().zip(rest).for_each(|(partial, (&a, &b))| *partial += term(a, b));
    partials.iter().sum()
}

/// Returns the largest element. NaN is ignored; the result of an empty row is minus infinity.
pub(super) fn row_max<T: Real>(row: &[T]) -> T {
    let larger = |a: T, b: T| if b > a { b } else { a };
    let mut partials = [T::neg_infinity(); PARTIAL_RESULTS];
    let mut chunks = row.chunks_exact(PARTIAL_RESULTS);
    for chunk in &mut chunks {
        partials.iter_mut().zip(chunk).for_each(|(partial, &value)| *partial = larger(*partial, value));
    }
    chunks.remainder().iter().chain(&partials).fold(T::neg_infinity(), |all, &value| larger(all, value))
}

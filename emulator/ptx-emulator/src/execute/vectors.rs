//! How code is compiled for the vectors of the processor at hand.

use pulp::{Simd, WithSimd};

/// In a function of its own: one function of all operations would take minutes to compile, and would keep what it works on in memory.
#[inline(never)]
pub(crate) fn apart<S: Simd, T>(simd: S, work: impl FnOnce() -> T) -> T {
    simd.vectorize(Work(work))
}

/// In the function that it stands in, which has to be compiled for vectors itself.
#[inline(always)]
pub(crate) fn inlined<S: Simd, T>(_: S, work: impl FnOnce() -> T) -> T {
    work()
}

struct Work<F>(F);

impl<T, F: FnOnce() -> T> WithSimd for Work<F> {
    type Output = T;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> T {
        (self.0)()
    }
}

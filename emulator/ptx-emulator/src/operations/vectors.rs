//! Compilation of operations for the vector instructions of the processor.

use pulp::{Simd, WithSimd};

/// Runs `work` in a function that is compiled separately for the vector instructions that `simd`
/// selects. A single function of all operations would take minutes to compile and would spill its
/// values to memory.
#[inline(never)]
pub(crate) fn outlined<S: Simd, T>(simd: S, work: impl FnOnce() -> T) -> T {
    simd.vectorize(Work(work))
}

/// Runs `work` inline. The surrounding function must be compiled for vector instructions.
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

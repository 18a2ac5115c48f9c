use num_traits::{Float, NumAssign};

use super::functions::Functions;
use super::operation::CpuKernel;
use super::prepare;
use super::simd::{Kernels, tables};
use super::workers::Workers;
use crate::{EngineError, KernelSpec, Precision};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// Scalar of a [`CpuEngine`](crate::CpuEngine): `f32` or `f64`.
///
/// Training uses `f32`. The same kernels in `f64` are accurate enough to check gradients by finite
/// differences.
pub trait Real:
    sealed::Sealed + Functions + Float + NumAssign + Default + std::fmt::Debug + Send + Sync + 'static
{
    /// Precision of this scalar.
    const PRECISION: Precision;

    /// Rounds a double to the nearest scalar.
    fn narrow(value: f64) -> Self;

    /// Converts the scalar to a double.
    fn widen(self) -> f64;

    /// Returns the kernels of the inner loops of products for each instruction set that the
    /// processor supports, the fastest first.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn kernels() -> Vec<&'static Kernels<Self>>;

    /// Prepares a kernel. The code is compiled in this crate, once for each scalar, and not in
    /// every crate that uses the engine.
    ///
    /// # Errors
    /// See [`Engine::prepare`](crate::Engine::prepare).
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn prepare(spec: &KernelSpec<'_>, workers: &Workers) -> Result<CpuKernel<Self>, EngineError>;
}

impl Real for f32 {
    const PRECISION: Precision = Precision::F32;

    #[inline]
    fn narrow(value: f64) -> Self {
        value as Self
    }

    #[inline]
    fn widen(self) -> f64 {
        f64::from(self)
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn kernels() -> Vec<&'static Kernels<Self>> {
        tables().into_iter().map(|(single, _)| single).collect()
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn prepare(spec: &KernelSpec<'_>, workers: &Workers) -> Result<CpuKernel<Self>, EngineError> {
        prepare::kernel(spec, workers)
    }
}

impl Real for f64 {
    const PRECISION: Precision = Precision::F64;

    #[inline]
    fn narrow(value: f64) -> Self {
        value
    }

    #[inline]
    fn widen(self) -> f64 {
        self
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn kernels() -> Vec<&'static Kernels<Self>> {
        tables().into_iter().map(|(_, double)| double).collect()
    }

    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn prepare(spec: &KernelSpec<'_>, workers: &Workers) -> Result<CpuKernel<Self>, EngineError> {
        prepare::kernel(spec, workers)
    }
}

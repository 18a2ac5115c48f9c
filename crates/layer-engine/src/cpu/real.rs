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

/// The scalars that a [`CpuEngine`](crate::CpuEngine) computes with: `f32` and `f64`.
///
/// Training runs in `f32`. The same kernels in `f64` are exact enough to check gradients by finite differences.
pub trait Real:
    sealed::Sealed + Functions + Float + NumAssign + Default + std::fmt::Debug + Send + Sync + 'static
{
    /// The precision of this scalar.
    const PRECISION: Precision;

    /// The nearest scalar to a double.
    fn narrow(value: f64) -> Self;

    /// The same number as a double.
    fn widen(self) -> f64;

    /// The inner loops of products in each instruction set that this processor has, the best first.
    #[doc(hidden)]
    #[allow(private_interfaces, reason = "the trait is sealed")]
    fn kernels() -> Vec<&'static Kernels<Self>>;

    /// The kernel of a description. Its code is compiled in this crate, once for each scalar, and not again in every crate that uses
    /// the engine.
    ///
    /// # Errors
    /// As [`Engine::prepare`](crate::Engine::prepare).
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

//! Scalars of the CPU engine.

use std::fmt::Debug;

use num_traits::{Float, NumAssign};

use self::sealed::Sealed;
use super::functions::ElementaryFunctions;
use super::gemm::Multiply;
use super::operation::CpuKernel;
use super::simd::Kernels;
use super::workers::Workers;
use crate::{EngineError, KernelSpec, Precision};

pub(super) mod sealed {
    /// Supertrait that other crates cannot implement, so that they cannot implement `Real`.
    pub trait Sealed {}
}

/// Scalar of a [`CpuEngine`](crate::CpuEngine): `f32` or `f64`.
///
/// Training uses `f32`. The same kernels in `f64` are accurate enough to check gradients by finite
/// differences.
pub trait Real:
    Sealed + ElementaryFunctions + Multiply + Float + NumAssign + Default + Debug + Send + Sync + 'static
{
    /// Precision of this scalar.
    const PRECISION: Precision;

    /// Rounds a double to the nearest number of this type.
    fn narrow(value: f64) -> Self;

    /// Converts the scalar to a double, which is exact.
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
    fn prepare(
        spec: &KernelSpec<'_>,
        precision: Precision,
        workers: &Workers,
    ) -> Result<CpuKernel<Self>, EngineError>;
}

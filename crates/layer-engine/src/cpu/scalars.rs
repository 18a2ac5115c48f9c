//! The two scalars of the engine: implementations of [`Real`] for `f32` and `f64`.
//!
//! They are apart from the trait because they refer to all kernels, which are generic over it.

use super::operation::CpuKernel;
use super::real::{Real, sealed::Sealed};
use super::simd::{Kernels, tables};
use super::workers::Workers;
use super::{NAME, packed, prepare};
use crate::{EngineError, KernelSpec, Precision};

impl Sealed for f32 {}
impl Sealed for f64 {}

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
    fn prepare(
        spec: &KernelSpec<'_>,
        precision: Precision,
        workers: &Workers,
    ) -> Result<CpuKernel<Self>, EngineError> {
        match precision {
            Precision::F32 => prepare::kernel(spec, precision, workers),
            Precision::Bf16 => packed::kernel(spec, workers),
            _ => Err(EngineError::Precision { engine: NAME, precision }),
        }
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
    fn prepare(
        spec: &KernelSpec<'_>,
        precision: Precision,
        workers: &Workers,
    ) -> Result<CpuKernel<Self>, EngineError> {
        match precision {
            Precision::F64 => prepare::kernel(spec, precision, workers),
            _ => Err(EngineError::Precision { engine: NAME, precision }),
        }
    }
}

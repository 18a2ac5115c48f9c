//! Green contexts: streams on a part of a device's multiprocessors. *CUDA errors* are failed calls
//! of the CUDA driver.

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys::{self, CUgreenCtx_st, CUgreenCtxCreate_flags, CUstream_st};

use crate::driver::{NON_BLOCKING, cu, written};
use crate::error::GREEN_CONTEXT;
use crate::handle::Raw;
use crate::{Context, Error, Result};

/// Fixed subset of a device's multiprocessors: kernels launched into its streams run on these and
/// on no others.
///
/// It is used through its streams alone and never made current, which CUDA permits for one thread
/// at a time. Kernels, graphs and events belong to the device's [`Context`].
///
/// Caches and memory bandwidth are shared. Other streams may also run on these multiprocessors: it
/// is a cap, not a reservation.
#[derive(Debug, Clone)]
pub struct GreenContext(pub(crate) Arc<Green>);

/// Owner of the driver's green context, which the handles and streams share. Dropping the last
/// reference destroys it.
#[derive(Debug)]
pub(crate) struct Green {
    context: Context,
    /// Used by one thread at a time.
    raw: Mutex<Raw<CUgreenCtx_st>>,
    multiprocessors: u32,
}

impl GreenContext {
    /// Creates a green context of at least `multiprocessors` multiprocessors. CUDA rounds up to the
    /// granularity of the architecture (8 on Hopper).
    ///
    /// # Errors
    /// [`Error::Unsupported`] if the driver or the device has no green contexts; [`Error::Invalid`]
    /// if `multiprocessors` is zero or larger than the device's number; CUDA errors.
    pub fn new(context: &Context, multiprocessors: u32) -> Result<Self> {
        context.bind()?;
        let driver = context.driver();
        let whole = context.multiprocessors_as_resource()?;
        // SAFETY: the resource was requested as multiprocessors, so the `sm` field is valid.
        let there = unsafe { whole.__bindgen_anon_1.sm.smCount };
        if multiprocessors == 0 || multiprocessors > there {
            return Err(Error::Invalid(format!(
                "{multiprocessors} multiprocessors were requested, and the device has {there}"
            )));
        }
        let mut groups = 1;
        let rest = std::ptr::null_mut();
        // SAFETY: one group and the number of groups are written; the null remainder is permitted.
        let mut part: sys::CUdevResource = written(|part| unsafe {
            let (groups, whole) = (&raw mut groups, &raw const whole);
            cu!(driver, cuDevSmResourceSplitByCount(part, groups, whole, rest, 0, multiprocessors))
        })
        .map_err(|error| error.unsupported_as(GREEN_CONTEXT))?;
        // SAFETY: a part of an SM resource is an SM resource.
        let multiprocessors = unsafe { part.__bindgen_anon_1.sm.smCount };
        // SAFETY: the description is written; the resource was made by CUDA.
        let description = written(|description| unsafe {
            cu!(driver, cuDevResourceGenerateDesc(description, &raw mut part, 1))
        })
        .map_err(|error| error.unsupported_as(GREEN_CONTEXT))?;
        let flags = CUgreenCtxCreate_flags::CU_GREEN_CTX_DEFAULT_STREAM as u32;
        let device = context.device();
        // SAFETY: the context is written; description and device are CUDA's.
        let raw = Mutex::new(Raw(written(|green| unsafe {
            cu!(driver, cuGreenCtxCreate(green, description, device, flags))
        })
        .map_err(|error| error.unsupported_as(GREEN_CONTEXT))?));
        let green = Green { context: context.clone(), raw, multiprocessors };
        green.convert()?;
        Ok(Self(Arc::new(green)))
    }

    /// Returns the number of multiprocessors that CUDA has assigned.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }
}

impl Green {
    /// Returns the context of the device that it belongs to.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// Requests the `CUcontext` of this green context. It is not used, but without this call CUDA
    /// refuses to change kernels that were captured in its streams (`CUDA_ERROR_INVALID_CONTEXT`,
    /// observed on an H200 with driver 580).
    fn convert(&self) -> Result<()> {
        let green = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is written; the green context is alive, and no other thread uses it.
        written(|context| unsafe { cu!(self.context.driver(), cuCtxFromGreenCtx(context, green.0)) })
            .map(drop)
            .map_err(|error| error.unsupported_as(GREEN_CONTEXT))
    }

    /// Creates a stream in this green context that does not synchronize with the default stream.
    /// `priority` is the driver's number.
    pub(crate) fn stream(&self, priority: i32) -> Result<*mut CUstream_st> {
        let green = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = self.context.driver();
        // SAFETY: the stream is written; the green context is alive, and no other thread uses it.
        written(|stream| unsafe {
            cu!(driver, cuGreenCtxStreamCreate(stream, green.0, NON_BLOCKING, priority))
        })
        .map_err(|error| error.unsupported_as(GREEN_CONTEXT))
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        // SAFETY: it is destroyed once, and its streams, which hold a reference to it, are gone.
        self.context.destroy(|| unsafe { cu!(driver, cuGreenCtxDestroy(raw)) });
    }
}

#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use super::Raw;
use super::context::Context;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::{self, GreenOf, StreamOf};

/// Some of a device's multiprocessors, set apart: what is launched into its streams runs on them and on no others.
///
/// It is entered by its streams alone and never made a thread's current context, which CUDA allows to one thread at a
/// time: kernels, graphs and events are those of the device's [`Context`].
///
/// Caches and memory bandwidth stay shared. Other streams may still run on these multiprocessors: it caps, and does
/// not reserve.
#[derive(Debug, Clone)]
pub struct GreenContext(pub(super) Arc<Green>);

#[derive(Debug)]
pub(in crate::cuda) struct Green {
    context: Context,
    /// For one thread at a time.
    raw: Mutex<Raw<GreenOf>>,
    multiprocessors: u32,
}

impl GreenContext {
    /// Sets at least `multiprocessors` apart. CUDA rounds up to what the architecture can divide (8 on Hopper).
    ///
    /// # Errors
    /// [`Error::Lacking`] where driver or device have no green contexts; [`Error::Invalid`] for none or more
    /// multiprocessors than there are; what CUDA reports.
    pub fn new(context: &Context, multiprocessors: u32) -> Result<Self> {
        context.bind()?;
        let driver = context.driver();
        let whole = context.multiprocessors_as_resource()?;
        // SAFETY: multiprocessors were asked for, so these are counted.
        let there = unsafe { whole.__bindgen_anon_1.sm.smCount };
        if multiprocessors == 0 || multiprocessors > there {
            return Err(Error::Invalid(format!(
                "{multiprocessors} multiprocessors were to be set apart, and the device has {there}"
            )));
        }
        let mut groups = 1;
        let rest = std::ptr::null_mut();
        // SAFETY: one group is written, and how many there are; there is no place for the rest.
        let mut part = written(|part| unsafe {
            driver.resource_split(part, &raw mut groups, &raw const whole, rest, 0, multiprocessors)
        })
        .map_err(|error| error.of(sys::GREEN_CONTEXT))?;
        // SAFETY: a part of multiprocessors are multiprocessors.
        let multiprocessors = unsafe { part.__bindgen_anon_1.sm.smCount };
        // SAFETY: the description is written; the resource was made by CUDA.
        let description =
            written(|description| unsafe { driver.resource_describe(description, &raw mut part, 1) })
                .map_err(|error| error.of(sys::GREEN_CONTEXT))?;
        let (device, flags) = (context.device(), sys::GREEN_DEFAULT_STREAM);
        // SAFETY: the context is written; description and device are CUDA's.
        let raw = Mutex::new(Raw(written(|green| unsafe {
            driver.green_create(green, description, device, flags)
        })
        .map_err(|error| error.of(sys::GREEN_CONTEXT))?));
        let green = Green { context: context.clone(), raw, multiprocessors };
        green.convert()?;
        Ok(Self(Arc::new(green)))
    }

    /// How many multiprocessors it has got.
    #[must_use]
    pub fn multiprocessors(&self) -> u32 {
        self.0.multiprocessors
    }
}

impl Green {
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// Asks for the context that stands for it. Nothing uses that; but before it has been asked for, CUDA refuses to change
    /// kernels that were captured in its streams (`CUDA_ERROR_INVALID_CONTEXT`, seen on an H200 with driver 580).
    fn convert(&self) -> Result<()> {
        let green = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the context is written; the green context is alive, and no other thread uses it.
        written(|context| unsafe { self.context.driver().green_as_context(context, green.0) })
            .map(drop)
            .map_err(|error| error.of(sys::GREEN_CONTEXT))
    }

    /// A stream that runs in it, and does not wait for the default stream.
    pub(super) fn stream(&self, priority: i32) -> Result<Raw<StreamOf>> {
        let green = self.raw.lock().unwrap_or_else(PoisonError::into_inner);
        let (driver, flags) = (self.context.driver(), sys::STREAM_NON_BLOCKING);
        // SAFETY: the stream is written; the green context is alive, and no other thread uses it.
        written(|stream| unsafe { driver.green_stream(stream, green.0, flags, priority) })
            .map(Raw)
            .map_err(|error| error.of(sys::GREEN_CONTEXT))
    }
}

impl Drop for Green {
    fn drop(&mut self) {
        let driver = self.context.driver();
        let raw = self.raw.get_mut().unwrap_or_else(PoisonError::into_inner).0;
        // SAFETY: it is destroyed once, and its streams, which keep it, are gone.
        self.context.destroy(|| unsafe { driver.green_destroy(raw) });
    }
}

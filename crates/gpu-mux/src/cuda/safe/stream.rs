//! Streams and their priorities. Functions that return a `Result` also return the error of a failed
//! call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::c_void;

use super::Raw;
use super::context::Context;
use super::green::GreenContext;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::{Driver, written};
use crate::cuda::sys::{CUstream_st, STREAM_NON_BLOCKING};

/// Scheduling priority of the kernels of a stream or a graph. Waiting blocks are started in
/// priority order. It is a hint, does not preempt running blocks, and applies to kernels only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The greatest priority of the device.
    Foreground,
    /// The least priority of the device, CUDA's default.
    #[default]
    Background,
}

impl Priority {
    /// Returns the driver's number of this priority on the device; a smaller number is a greater
    /// priority.
    pub(super) fn number(self, context: &Context) -> Result<i32> {
        let (greatest, least) = context.priorities()?;
        Ok(if self == Self::Foreground { greatest } else { least })
    }
}

/// CUDA stream: a queue of work on the device that runs in order, concurrently with that of other
/// streams.
///
/// It does not synchronize with CUDA's default stream. Dropping it does not cancel its work.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    raw: Raw<CUstream_st>,
    /// The green context that it runs in, if it does not use the whole device.
    green: Option<GreenContext>,
    /// Whether another library owns it and destroys it.
    borrowed: bool,
}

impl Stream {
    /// Creates a stream on the whole device.
    pub fn new(context: &Context, priority: Priority) -> Result<Self> {
        let number = priority.number(context)?;
        let driver = context.driver();
        // SAFETY: the stream is written; the context is current.
        let raw = written(|stream| unsafe { driver.stream_create(stream, STREAM_NON_BLOCKING, number) })?;
        Ok(Self { context: context.clone(), raw: Raw(raw), green: None, borrowed: false })
    }

    /// Creates a stream whose kernels run only on the multiprocessors of `green`.
    pub fn within(green: &GreenContext, priority: Priority) -> Result<Self> {
        let context = green.0.context();
        let number = priority.number(context)?;
        let raw = green.0.stream(number)?;
        Ok(Self { context: context.clone(), raw, green: Some(green.clone()), borrowed: false })
    }

    /// Wraps a `CUstream` (`cudaStream_t`) that another library has created in the device's primary
    /// context and will destroy.
    ///
    /// # Safety
    /// `raw` must be a stream of this context and outlive the returned value and the work that is
    /// put into it.
    #[must_use]
    pub unsafe fn borrow(context: &Context, raw: *mut c_void) -> Self {
        Self { context: context.clone(), raw: Raw(raw.cast()), green: None, borrowed: true }
    }

    /// Returns the context of the stream's device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Returns the `CUstream` (`cudaStream_t`) for other libraries, valid as long as this stream.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    /// Returns whether all work in the stream is complete.
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.driver().stream_is_idle(self.raw.0) }
    }

    /// Blocks until all work in the stream is complete.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.driver().stream_synchronize(self.raw.0) }
    }

    /// Returns `result`, the result of a call for this stream. In a stream of a green context, an
    /// error that the driver does not accept objects of the device's context there is converted to
    /// `Error::Unsupported`, which names the technique.
    pub(super) fn with_technique(&self, result: Result<()>) -> Result<()> {
        match self.green {
            Some(_) => result.map_err(Error::in_green_context),
            None => result,
        }
    }

    /// Returns the functions of the CUDA driver.
    pub(super) fn driver(&self) -> &Driver {
        self.context.driver()
    }

    /// Returns the driver's handle, which is valid while this stream is alive.
    pub(super) fn raw(&self) -> *mut CUstream_st {
        self.raw.0
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        // SAFETY: it is destroyed once.
        self.context.destroy(|| unsafe { self.driver().stream_destroy(self.raw.0) });
    }
}

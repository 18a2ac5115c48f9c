//! Streams and their priorities. Functions that return a `Result` also return the error of a failed
//! call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUstream_st, CUstreamCaptureStatus};

use crate::driver::{Driver, NON_BLOCKING, cu, cu_ready, written};
use crate::handle::Raw;
use crate::{Context, Error, GreenContext, Result};

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
    pub(crate) fn number(self, context: &Context) -> Result<i32> {
        let (greatest, least) = context.priorities()?;
        Ok(if self == Self::Foreground { greatest } else { least })
    }
}

/// CUDA stream: a queue of work on the device that runs in order, concurrently with that of other
/// streams. A clone is another handle of it.
///
/// It does not synchronize with CUDA's default stream. Dropping it does not cancel its work.
#[derive(Debug, Clone)]
pub struct Stream(Arc<StreamState>);

#[derive(Debug)]
struct StreamState {
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
        // SAFETY: the stream is written; the context is current.
        let raw = written(|stream| unsafe {
            cu!(context.driver(), cuStreamCreateWithPriority(stream, NON_BLOCKING, number))
        })?;
        Ok(Self::from_parts(context, raw, None, false))
    }

    /// Creates a stream whose kernels run only on the multiprocessors of `green`.
    pub fn within(green: &GreenContext, priority: Priority) -> Result<Self> {
        let context = green.0.context();
        let number = priority.number(context)?;
        Ok(Self::from_parts(context, green.0.stream(number)?, Some(green.clone()), false))
    }

    /// Wraps a `CUstream` (`cudaStream_t`) that another library has created in the device's primary
    /// context and will destroy.
    ///
    /// # Safety
    /// `raw` must be a stream of this context and outlive the returned value, its clones, and the
    /// work that is put into it. If the other library captures it, what is put into it meanwhile
    /// must outlive the graph.
    #[must_use]
    pub unsafe fn borrow(context: &Context, raw: *mut c_void) -> Self {
        Self::from_parts(context, raw.cast(), None, true)
    }

    /// Wraps CUDA's default stream, with which blocking streams of other libraries synchronize.
    pub(crate) fn default_of(context: &Context) -> Self {
        Self::from_parts(context, std::ptr::null_mut(), None, true)
    }

    fn from_parts(
        context: &Context,
        raw: *mut CUstream_st,
        green: Option<GreenContext>,
        borrowed: bool,
    ) -> Self {
        Self(Arc::new(StreamState { context: context.clone(), raw: Raw(raw), green, borrowed }))
    }

    /// Returns the context of the stream's device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.0.context
    }

    /// Returns the `CUstream` (`cudaStream_t`) for other libraries, valid as long as this stream.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw().cast()
    }

    /// Returns whether all work in the stream is complete.
    pub fn is_idle(&self) -> Result<bool> {
        self.context().bind()?;
        // SAFETY: it is alive.
        unsafe { cu_ready!(self.driver(), cuStreamQuery(self.raw())) }
    }

    /// Blocks until all work in the stream is complete.
    pub fn synchronize(&self) -> Result<()> {
        self.context().bind()?;
        // SAFETY: it is alive.
        unsafe { cu!(self.driver(), cuStreamSynchronize(self.raw())) }
    }

    /// Returns whether work in the stream is being captured instead of executed.
    pub fn is_capturing(&self) -> Result<bool> {
        self.context().bind()?;
        // SAFETY: the status is written; the stream is alive.
        let status: u32 = written(|status: *mut u32| unsafe {
            cu!(self.driver(), cuStreamIsCapturing(self.raw(), status.cast()))
        })?;
        Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE as u32)
    }

    /// Returns `result`, the result of a call for this stream. In a stream of a green context, an
    /// error that the driver does not accept objects of the device's context there is converted to
    /// `Error::Unsupported`, which names the technique.
    pub(crate) fn with_technique(&self, result: Result<()>) -> Result<()> {
        match self.0.green {
            Some(_) => result.map_err(Error::in_green_context),
            None => result,
        }
    }

    /// Returns the driver.
    pub(crate) fn driver(&self) -> &Driver {
        self.context().driver()
    }

    /// Returns the driver's handle, which is valid while this stream is alive.
    pub(crate) fn raw(&self) -> *mut CUstream_st {
        self.0.raw.0
    }
}

impl PartialEq for Stream {
    /// Returns whether both are the same stream of the driver.
    fn eq(&self, other: &Self) -> bool {
        self.raw() == other.raw() && self.context().is_same(other.context())
    }
}

impl Eq for Stream {}

impl Drop for StreamState {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let driver = self.context.driver();
        // SAFETY: it is destroyed once.
        self.context.destroy(|| unsafe { cu!(driver, cuStreamDestroy_v2(self.raw.0)) });
    }
}

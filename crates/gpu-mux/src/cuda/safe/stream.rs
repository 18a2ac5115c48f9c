#![allow(unsafe_code)]

use std::ffi::c_void;

use super::Raw;
use super::context::Context;
use super::event::Event;
use super::green::GreenContext;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::{Driver, written};
use crate::cuda::sys::{STREAM_NON_BLOCKING, StreamOf};

/// How urgent a stream's kernels, or a graph's, are to the device's scheduler: blocks that wait are started in this
/// order. It is a hint, it does not interrupt what runs, and it is for kernels only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Priority {
    /// The greatest that the device has.
    Foreground,
    /// The least that the device has, which is CUDA's default.
    #[default]
    Background,
}

impl Priority {
    pub(super) fn number(self, context: &Context) -> Result<i32> {
        let (greatest, least) = context.priorities()?;
        Ok(if self == Self::Foreground { greatest } else { least })
    }
}

/// A queue of work on the device: what is put in runs in order, beside what is in other streams.
///
/// It does not wait for CUDA's default stream, nor that for it. Work that is in it when it is dropped runs to its end.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    raw: Raw<StreamOf>,
    /// What it runs in, where that is not the whole device.
    green: Option<GreenContext>,
    /// Another library destroys it.
    borrowed: bool,
}

impl Stream {
    /// A stream of the whole device.
    pub fn new(context: &Context, priority: Priority) -> Result<Self> {
        let number = priority.number(context)?;
        let driver = context.driver();
        // SAFETY: the stream is written; the context is current.
        let raw = written(|stream| unsafe { driver.stream_create(stream, STREAM_NON_BLOCKING, number) })?;
        Ok(Self { context: context.clone(), raw: Raw(raw), green: None, borrowed: false })
    }

    /// A stream whose kernels run on the multiprocessors of `green` only.
    pub fn within(green: &GreenContext, priority: Priority) -> Result<Self> {
        let context = green.0.context();
        let number = priority.number(context)?;
        let raw = green.0.stream(number)?;
        Ok(Self { context: context.clone(), raw, green: Some(green.clone()), borrowed: false })
    }

    /// A stream that another library has made in the device's primary context, and which that one destroys: a `CUstream` or
    /// `cudaStream_t`.
    ///
    /// # Safety
    /// It is a stream of this context, and lives as long as this and as the work that is put into it.
    #[must_use]
    pub unsafe fn borrow(context: &Context, raw: *mut c_void) -> Self {
        Self { context: context.clone(), raw: Raw(raw.cast()), green: None, borrowed: true }
    }

    /// The context it belongs to.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// CUDA's `CUstream` or `cudaStream_t`, for other libraries. It lives as long as this stream.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    /// Records an event, which [`Event::is_complete`] queries.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive.
        self.named(unsafe { self.driver().event_record(event.raw(), self.raw.0) })
    }

    /// Work that is put in from now on waits until `event`, as it was last recorded, is complete; the caller does not wait.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.context.bind()?;
        // SAFETY: both are alive, and the event may be recorded again or destroyed afterwards.
        self.named(unsafe { self.driver().stream_wait_event(self.raw.0, event.raw(), 0) })
    }

    /// Whether all work in the stream is complete.
    pub fn is_idle(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.driver().stream_is_idle(self.raw.0) }
    }

    /// Waits until all work in the stream is complete. It blocks.
    pub fn synchronize(&self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.driver().stream_synchronize(self.raw.0) }
    }

    /// The same result, but for a driver that cannot use objects of the device's context in a green context's stream: an
    /// error that names what it lacks.
    pub(super) fn named(&self, result: Result<()>) -> Result<()> {
        match self.green {
            Some(_) => result.map_err(Error::in_green_context),
            None => result,
        }
    }

    pub(super) fn driver(&self) -> &Driver {
        self.context.driver()
    }

    pub(super) fn raw(&self) -> *mut StreamOf {
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

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::time::Duration;

use super::Raw;
use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::{EVENT_DISABLE_TIMING, EVENT_TIMED, EventOf};

/// A CUDA event: a marker in a stream whose completion can be queried without waiting. It can be recorded again and
/// again.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: Raw<EventOf>,
    /// Another library destroys it.
    borrowed: bool,
}

impl Event {
    /// An event that also records the time, for the streams of `stream`'s context.
    pub fn timed(stream: &Stream) -> Result<Self> {
        Self::new(stream, EVENT_TIMED)
    }

    /// An event without timing, which costs less.
    pub fn untimed(stream: &Stream) -> Result<Self> {
        Self::new(stream, EVENT_DISABLE_TIMING)
    }

    fn new(stream: &Stream, flags: u32) -> Result<Self> {
        let context = stream.context().clone();
        context.bind()?;
        // SAFETY: the event is written; the context is current.
        let raw = written(|event| unsafe { context.driver().event_create(event, flags) })?;
        Ok(Self { context, raw: Raw(raw), borrowed: false })
    }

    /// An event that another library has made in the device's primary context, and which that one destroys: a `CUevent` or
    /// `cudaEvent_t`.
    ///
    /// # Safety
    /// It is an event of this context, and lives as long as this.
    #[must_use]
    pub unsafe fn borrow(context: &Context, raw: *mut c_void) -> Self {
        Self { context: context.clone(), raw: Raw(raw.cast()), borrowed: true }
    }

    /// CUDA's `CUevent` or `cudaEvent_t`, for other libraries. It lives as long as this event.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    /// Whether the stream has completed all work before the event. It does not wait; an event that was never recorded is
    /// complete.
    pub fn is_complete(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.context.driver().event_is_reached(self.raw.0) }
    }

    /// The device's time between two complete events, as CUDA measures it: to about half a microsecond.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this event is the earlier one; what CUDA reports, if one of them is not complete, was never
    /// recorded or has no timing.
    pub fn since(&self, start: &Event) -> Result<Duration> {
        let milliseconds = self.milliseconds_since(start)?;
        Duration::try_from_secs_f64(milliseconds * 1e-3).map_err(|_| {
            Error::Invalid(format!("from one event to a later one CUDA measures {milliseconds} ms"))
        })
    }

    /// The same, below zero if this event is the earlier one.
    pub(in crate::cuda) fn milliseconds_since(&self, start: &Event) -> Result<f64> {
        self.context.bind()?;
        let driver = self.context.driver();
        // SAFETY: both are alive; the time is written.
        let milliseconds = written(|time| unsafe { driver.event_elapsed(time, start.raw.0, self.raw.0) })?;
        Ok(f64::from(milliseconds))
    }

    pub(super) fn raw(&self) -> *mut EventOf {
        self.raw.0
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let driver = self.context.driver();
        // SAFETY: it is destroyed once.
        self.context.destroy(|| unsafe { driver.event_destroy(self.raw.0) });
    }
}

//! Events: markers in streams. Functions that return a `Result` also return the error of a failed
//! call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::time::Duration;

use super::Raw;
use super::context::Context;
use super::stream::Stream;
use crate::cuda::error::{Error, Result};
use crate::cuda::result::written;
use crate::cuda::sys::{CUevent_st, EVENT_DISABLE_TIMING, EVENT_TIMED};

/// CUDA event: a marker in a stream whose completion can be queried without waiting. It can be
/// recorded repeatedly.
#[derive(Debug)]
pub struct Event {
    context: Context,
    raw: Raw<CUevent_st>,
    /// Whether another library owns it and destroys it.
    borrowed: bool,
}

impl Event {
    /// Creates an event with timing, for streams in the context of `stream`.
    pub fn timed(stream: &Stream) -> Result<Self> {
        Self::new(stream, EVENT_TIMED)
    }

    /// Creates an event without timing, which costs less, for streams in the context of `stream`.
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

    /// Wraps a `CUevent` or `cudaEvent_t` that another library has created in the device's primary
    /// context and will destroy.
    ///
    /// # Safety
    /// `raw` must be an event of this context and outlive the returned value.
    #[must_use]
    pub unsafe fn borrow(context: &Context, raw: *mut c_void) -> Self {
        Self { context: context.clone(), raw: Raw(raw.cast()), borrowed: true }
    }

    /// Returns the `CUevent` (`cudaEvent_t`) for other libraries, valid as long as this event.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    /// Returns whether the stream in which the event was recorded has completed all work before it.
    /// Does not wait. An event that was never recorded is complete.
    pub fn is_complete(&self) -> Result<bool> {
        self.context.bind()?;
        // SAFETY: it is alive.
        unsafe { self.context.driver().event_is_reached(self.raw.0) }
    }

    /// Returns the time from the event `start` to this one as measured by the device, with a
    /// resolution of about half a microsecond. Both must be complete.
    ///
    /// # Errors
    /// [`Error::Invalid`] if this event is the earlier one; CUDA errors if an event is not
    /// complete, was never recorded or has no timing.
    pub fn since(&self, start: &Event) -> Result<Duration> {
        let milliseconds = self.milliseconds_since(start)?;
        Duration::try_from_secs_f64(milliseconds * 1e-3).map_err(|_| {
            Error::Invalid(format!("the events are in the wrong order: CUDA measures {milliseconds} ms"))
        })
    }

    /// Returns the time from the event `start` to this one in milliseconds, negative if this event
    /// is the earlier one.
    pub(in crate::cuda) fn milliseconds_since(&self, start: &Event) -> Result<f64> {
        self.context.bind()?;
        let driver = self.context.driver();
        // SAFETY: both are alive; the time is written.
        let milliseconds = written(|time| unsafe { driver.event_elapsed(time, start.raw.0, self.raw.0) })?;
        Ok(f64::from(milliseconds))
    }

    /// Returns the driver's handle, which is valid while this event is alive.
    pub(super) fn raw(&self) -> *mut CUevent_st {
        self.raw.0
    }
}

impl Stream {
    /// Enqueues the recording of an event, which is complete when all earlier work in the stream
    /// is; [`Event::is_complete`] queries it. Recording an event again replaces the earlier
    /// recording.
    pub fn record(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: both are alive.
        self.with_technique(unsafe { self.driver().event_record(event.raw(), self.raw()) })
    }

    /// Makes later work in this stream wait until `event`, as last recorded, is complete. The host
    /// does not wait.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: both are alive; the event may be recorded again or destroyed afterwards.
        self.with_technique(unsafe { self.driver().stream_wait_event(self.raw(), event.raw(), 0) })
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

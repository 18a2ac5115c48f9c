//! Events: markers in streams. Functions that return a `Result` also return the error of a failed
//! call of the CUDA driver (a *CUDA error*).

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::time::Duration;

use cudarc::driver::sys::{self, CUevent_flags, CUevent_st, CUresult, CUstreamCaptureMode};

use crate::driver::{cu, cu_ready, written};
use crate::handle::Raw;
use crate::symbols::Code;
use crate::{Context, Error, Result, Stream};

/// Flags of an event that records its time.
const TIMED: u32 = CUevent_flags::CU_EVENT_DEFAULT as u32;
/// Flag of an event that records no time.
const UNTIMED: u32 = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;

/// Codes of a query that another thread's capture has interfered with.
const CAPTURE_INTERFERES: [CUresult; 9] = [
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_MERGE,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNMATCHED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_UNJOINED,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
    CUresult::CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD,
    CUresult::CUDA_ERROR_CAPTURED_EVENT,
];

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
        Self::new(stream, TIMED)
    }

    /// Creates an event without timing, which costs less, for streams in the context of `stream`.
    pub fn untimed(stream: &Stream) -> Result<Self> {
        Self::new(stream, UNTIMED)
    }

    fn new(stream: &Stream, flags: u32) -> Result<Self> {
        let context = stream.context().clone();
        context.bind()?;
        // SAFETY: the event is written; the context is current.
        let raw = written(|event| unsafe { cu!(context.driver(), cuEventCreate(event, flags)) })?;
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
        unsafe { cu_ready!(self.context.driver(), cuEventQuery(self.raw.0)) }
    }

    /// Like [`is_complete`](Self::is_complete), for a thread beside others that capture streams: a
    /// query in the thread's default mode would invalidate their captures. Returns `false` if a
    /// capture interferes.
    pub fn is_complete_beside_captures(&self) -> Result<bool> {
        let driver = self.context.driver();
        let mut mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED as u32;
        let mut exchange = || {
            // SAFETY: `mode` is read and written.
            unsafe { cu!(driver, cuThreadExchangeStreamCaptureMode((&raw mut mode).cast())) }
        };
        exchange()?;
        let answer = self.is_complete();
        let restored = exchange();
        self.context.store_error(restored);
        match answer {
            Err(Error::Call { code, .. }) if CAPTURE_INTERFERES.iter().any(|one| *one as Code == code) => {
                Ok(false)
            }
            answer => answer,
        }
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
    pub fn milliseconds_since(&self, start: &Event) -> Result<f64> {
        self.context.bind()?;
        let driver = self.context.driver();
        // cudarc for CUDA 13 has the second version only, which drivers before 12.8 lack.
        // SAFETY: both are alive; the time is written.
        let milliseconds: f32 = written(|time| unsafe {
            cu!(driver, cuEventElapsedTime like cuEventElapsedTime_v2(time, start.raw.0, self.raw.0))
        })?;
        Ok(f64::from(milliseconds))
    }

    /// Returns the driver's handle, which is valid while this event is alive.
    pub(crate) fn raw(&self) -> *mut CUevent_st {
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
        self.with_technique(unsafe { cu!(self.driver(), cuEventRecord(event.raw(), self.raw())) })
    }

    /// Makes later work in this stream wait until `event`, as last recorded, is complete. The host
    /// does not wait.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        self.context().bind()?;
        // SAFETY: both are alive; the event may be recorded again or destroyed afterwards.
        self.with_technique(unsafe { cu!(self.driver(), cuStreamWaitEvent(self.raw(), event.raw(), 0)) })
    }

    /// Makes later work in this stream wait for all work that is now in `other`. The host does not
    /// wait.
    pub fn wait_for_stream(&self, other: &Self) -> Result<()> {
        let event = Event::untimed(other)?;
        other.record(&event)?;
        self.wait_for(&event)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if self.borrowed {
            return;
        }
        let driver = self.context.driver();
        // SAFETY: it is destroyed once.
        self.context.destroy(|| unsafe { cu!(driver, cuEventDestroy_v2(self.raw.0)) });
    }
}

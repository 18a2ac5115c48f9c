//! Capture of work from streams. *CUDA errors* are failed calls of the CUDA driver.

#![allow(unsafe_code)]

use std::sync::Arc;

use cudarc::driver::sys::{self, CUstreamCaptureMode};

use crate::driver::{cu, written};
use crate::memory::Recording;
use crate::{CapturedGraph, Error, Result, Stream};

impl Stream {
    /// Captures the work that `enqueue` puts into the stream as a graph, without executing it. The
    /// graph is not instantiated; see [`CapturedGraph::instantiate`]. It keeps the buffers and
    /// modules that the captured kernels and copies use.
    ///
    /// Only this thread may enqueue work into the stream meanwhile. The capture is thread-local:
    /// calls of other threads do not end it, except waits for the context, as dropping memory makes
    /// them.
    ///
    /// Other streams can join the capture: [`record`](Self::record) an event in this stream and let
    /// them [`wait_for`](Self::wait_for) it; this stream must wait for an event at their ends
    /// before `enqueue` returns. During the capture, do not wait for events that were recorded
    /// before it, do not allocate memory, and do not wait on the host.
    ///
    /// # Errors
    /// Errors of `enqueue`, which take precedence; CUDA errors if these rules are violated. The
    /// stream remains usable.
    pub fn capture<E: From<Error>>(
        &self,
        enqueue: impl FnOnce(&Stream) -> std::result::Result<(), E>,
    ) -> std::result::Result<CapturedGraph, E> {
        self.context().bind()?;
        let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        // SAFETY: the stream is alive.
        unsafe { cu!(self.driver(), cuStreamBeginCapture_v2(self.raw(), mode)) }?;
        let capture = Capture { stream: self, recording: Recording::begin(), ended: false };
        let enqueued = enqueue(self);
        // If `enqueue` failed, an incomplete graph is dropped.
        let graph = capture.end();
        enqueued?;
        Ok(graph?)
    }
}

/// A stream that is being captured. Dropping it ends the capture, also during a panic.
struct Capture<'a> {
    stream: &'a Stream,
    recording: Recording,
    ended: bool,
}

impl Capture<'_> {
    fn end(mut self) -> Result<CapturedGraph> {
        let graph = self.try_end()?;
        self.ended = true;
        Ok(graph)
    }

    fn try_end(&self) -> Result<CapturedGraph> {
        self.stream.context().bind()?;
        let (driver, stream) = (self.stream.driver(), self.stream.raw());
        // SAFETY: the graph is written, or is null; from here on it is owned.
        let graph = written(|graph| unsafe { cu!(driver, cuStreamEndCapture(stream, graph)) })?;
        let kept = self.recording.take();
        // SAFETY: it is the stream's context, and the graph has no other owner.
        Ok(unsafe { CapturedGraph::own(self.stream.context().clone(), graph, Arc::new(kept)) })
    }

    /// Ends the capture if the first attempt failed. In most cases CUDA has already ended it.
    fn abort(&self) -> Result<()> {
        if self.stream.is_capturing()? { self.try_end().map(drop) } else { Ok(()) }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let ended = self.abort();
            self.stream.context().store_error(ended);
        }
    }
}

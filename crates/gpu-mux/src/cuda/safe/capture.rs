//! Capture of work from streams. *CUDA errors* are failed calls of the CUDA driver.

#![allow(unsafe_code)]

use super::graph::CapturedGraph;
use super::stream::Stream;
use crate::cuda::error::Result;
use crate::cuda::result::written;
use crate::cuda::sys::{CAPTURE_THREAD_LOCAL, NOT_CAPTURING};

impl Stream {
    /// Captures the work that `enqueue` puts into the stream as a graph, without executing it. The
    /// graph is not instantiated; see [`CapturedGraph::instantiate`].
    ///
    /// Other streams can join the capture: [`record`](Self::record) an event in this stream and let
    /// them [`wait_for`](Self::wait_for) it; this stream must wait for an event at their ends
    /// before `enqueue` returns. During the capture, do not wait for events that were recorded
    /// before it, do not allocate memory, and do not wait on the host.
    ///
    /// # Errors
    /// Errors of `enqueue`; CUDA errors if these rules are violated. The stream remains usable.
    pub fn capture(&self, enqueue: impl FnOnce(&Stream) -> Result<()>) -> Result<CapturedGraph> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.driver().stream_begin_capture(self.raw(), CAPTURE_THREAD_LOCAL) }?;
        let capture = Capture { stream: self, ended: false };
        let enqueued = enqueue(self);
        // If `enqueue` failed, an incomplete graph is dropped.
        let graph = capture.end();
        enqueued.and(graph)
    }
}

/// A stream that is being captured. Dropping it ends the capture, also during a panic.
struct Capture<'a> {
    stream: &'a Stream,
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
        let graph = written(|graph| unsafe { driver.stream_end_capture(stream, graph) })?;
        // SAFETY: it is the stream's context, and the graph has no other owner.
        Ok(unsafe { CapturedGraph::own(self.stream.context().clone(), graph) })
    }

    /// Ends the capture if the first attempt failed. In most cases CUDA has already ended it.
    fn abort(&self) -> Result<()> {
        let (driver, stream) = (self.stream.driver(), self.stream.raw());
        // SAFETY: the status is written; the stream is alive.
        let status = written(|status| unsafe { driver.stream_is_capturing(stream, status) })?;
        if status == NOT_CAPTURING { Ok(()) } else { self.try_end().map(drop) }
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

#![allow(unsafe_code)]

use super::graph::CapturedGraph;
use super::stream::Stream;
use crate::cuda::error::Result;
use crate::cuda::result::written;
use crate::cuda::sys::{CAPTURE_THREAD_LOCAL, NOT_CAPTURING};

impl Stream {
    /// Captures what `enqueue` puts into the stream as a graph, instead of executing it. It is not instantiated:
    /// that is for its pieces, or for [`CapturedGraph::instantiate`].
    ///
    /// Other streams can join the capture: [`record`](Self::record) an event in this one and let them
    /// [`wait_for`](Self::wait_for) it; and this one has to wait for an event at their ends before `enqueue` returns.
    /// Events that were recorded before the capture must not be waited for, memory must not be allocated, and nothing
    /// must be waited for by the host.
    ///
    /// # Errors
    /// What `enqueue` returns; what CUDA reports of a violation of these rules. The stream can be used again in any case.
    pub fn capture(&self, enqueue: impl FnOnce(&Stream) -> Result<()>) -> Result<CapturedGraph> {
        self.context().bind()?;
        // SAFETY: the stream is alive.
        unsafe { self.driver().stream_begin_capture(self.raw(), CAPTURE_THREAD_LOCAL) }?;
        let capture = Capture { stream: self, ended: false };
        let enqueued = enqueue(self);
        // The graph, if there is one, is dropped when its content is not whole.
        let graph = capture.end();
        enqueued.and(graph)
    }
}

/// A stream that is being captured. The capture ends with it, also when the work panics.
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
        // SAFETY: the graph is written, unless there is none, and is owned from here on.
        let graph = written(|graph| unsafe { driver.stream_end_capture(stream, graph) })?;
        // SAFETY: it is the stream's context, and the graph has no other owner.
        Ok(unsafe { CapturedGraph::own(self.stream.context().clone(), graph) })
    }

    /// Ends the capture where the first attempt has not; most often CUDA has ended it with its error.
    fn give_up(&self) -> Result<()> {
        let (driver, stream) = (self.stream.driver(), self.stream.raw());
        // SAFETY: the status is written; the stream is alive.
        let status = written(|status| unsafe { driver.stream_is_capturing(stream, status) })?;
        if status == NOT_CAPTURING { Ok(()) } else { self.try_end().map(drop) }
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        if !self.ended {
            let ended = self.give_up();
            self.stream.context().keep(ended);
        }
    }
}

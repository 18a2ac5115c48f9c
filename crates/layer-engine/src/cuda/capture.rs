//! Timing of captured work: CUDA graphs, which are captured from a stream once and launched many
//! times.
#![allow(unsafe_code)]

use std::time::Duration;

use cudarc::driver::result;
use cudarc::driver::sys::{
    CUevent, CUevent_flags, CUgraph, CUgraphExec, CUgraphInstantiate_flags, CUstream, CUstreamCaptureMode,
};

use super::{CudaQueue, driver_error};
use crate::EngineError;

/// Executable CUDA graph of the work that a function enqueued.
pub(super) struct CapturedGraph(CUgraphExec);

impl CapturedGraph {
    /// Captures the work that `body` enqueues in `queue` into a graph. None of the work runs.
    ///
    /// # Errors
    /// The error of `body`, or [`EngineError::Library`] if the capture fails.
    pub(super) fn new(
        queue: &mut CudaQueue,
        body: &mut dyn FnMut(&mut CudaQueue) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let capture = |error| driver_error("capture a graph", error);
        let stream = queue.stream();
        queue.device().bind().map_err(capture)?;
        // SAFETY: the stream lives as long as the queue.
        unsafe {
            result::stream::begin_capture(stream, CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
        }
        .map_err(capture)?;
        let enqueued = body(queue);
        // SAFETY: as above. The capture ends even if `body` failed.
        let graph = RawGraph(unsafe { result::stream::end_capture(stream) }.map_err(capture)?);
        enqueued?;
        // SAFETY: the graph is valid.
        let executable = unsafe { result::graph::instantiate(graph.0, CUgraphInstantiate_flags(0)) };
        executable.map(Self).map_err(capture)
    }

    /// Launches the graph `rounds` times in a row and waits. Returns the time of all launches
    /// together, measured by events in the stream.
    ///
    /// # Errors
    /// [`EngineError::Library`] if a launch or the captured work fails.
    pub(super) fn time(&self, queue: &mut CudaQueue, rounds: u32) -> Result<Duration, EngineError> {
        let [start, end] = [Event::new()?, Event::new()?];
        start.record(queue.stream())?;
        for _ in 0..rounds {
            // SAFETY: the graph and the stream are valid; the memory that the graph uses is alive
            // because its body borrows it.
            unsafe { result::graph::launch(self.0, queue.stream()) }
                .map_err(|error| driver_error("launch a graph", error))?;
        }
        end.record(queue.stream())?;
        queue.synchronize()?;
        // SAFETY: both events have been recorded and reached.
        let milliseconds = unsafe { result::event::elapsed(start.0, end.0) };
        let milliseconds = milliseconds.map_err(|error| driver_error("read the device's clock", error))?;
        Ok(Duration::from_secs_f64(f64::from(milliseconds.max(0.0)) / 1e3))
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        // SAFETY: the graph is destroyed once; a running launch completes.
        let _ = unsafe { result::graph::exec_destroy(self.0) };
    }
}

/// A captured graph.
struct RawGraph(CUgraph);

impl Drop for RawGraph {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the graph is destroyed once.
            let _ = unsafe { result::graph::destroy(self.0) };
        }
    }
}

/// An event in a stream, with its time.
struct Event(CUevent);

impl Event {
    fn new() -> Result<Self, EngineError> {
        let event = result::event::create(CUevent_flags::CU_EVENT_DEFAULT);
        event.map(Self).map_err(|error| driver_error("create an event", error))
    }

    fn record(&self, stream: CUstream) -> Result<(), EngineError> {
        // SAFETY: the event and the stream are valid.
        unsafe { result::event::record(self.0, stream) }
            .map_err(|error| driver_error("record an event", error))
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the event is destroyed once.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}

//! Capture of a stream's work in a CUDA graph, and the waits that are impossible during a capture.
#![allow(unsafe_code)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::{PoisonError, RwLock, RwLockWriteGuard};

use super::Failure;
use super::ffi::{Message, Stream, check};

unsafe extern "C" {
    fn layer_engine_device_synchronize(device: c_int) -> Message;
    fn layer_engine_graph_begin(graph: *mut *mut c_void) -> Message;
    fn layer_engine_graph_end(graph: *mut c_void) -> Message;
    fn layer_engine_graph_free(graph: *mut c_void);
    fn layer_engine_graph_time(
        graph: *mut c_void,
        device: c_int,
        stream: i64,
        rounds: u32,
        milliseconds: *mut f64,
    ) -> Message;
}

/// Held for writing during a capture and for reading during a wait for a device. CUDA forbids
/// waiting for a device while any stream is captured: the wait and the capture would both fail.
/// Captures are short.
static CAPTURE_LOCK: RwLock<()> = RwLock::new(());

thread_local! {
    /// Whether this thread is capturing. It would otherwise deadlock on its own lock.
    static IS_CAPTURING: Cell<bool> = const { Cell::new(false) };
}

/// Waits for all work on the CUDA device with this index. Waits for captures by other threads
/// first.
///
/// # Errors
/// If work on the device failed, or this thread is capturing.
pub(super) fn device_synchronize(device: c_int) -> Result<(), Failure> {
    let _no_capture =
        (!IS_CAPTURING.get()).then(|| CAPTURE_LOCK.read().unwrap_or_else(PoisonError::into_inner));
    // SAFETY: every device index is valid.
    check(unsafe { layer_engine_device_synchronize(device) })
}

/// A running capture. Other threads cannot begin a capture or wait for a device meanwhile.
pub(super) struct Capture {
    graph: ReplayGraph,
    _guard: RwLockWriteGuard<'static, ()>,
}

impl Capture {
    /// Begins to capture the current stream, which must not be the default stream. No work runs
    /// until [`end`](Self::end).
    ///
    /// # Errors
    /// If CUDA cannot capture the stream.
    pub(super) fn begin() -> Result<Self, Failure> {
        let guard = CAPTURE_LOCK.write().unwrap_or_else(PoisonError::into_inner);
        let mut graph = std::ptr::null_mut();
        // SAFETY: the call writes to the pointer.
        check(unsafe { layer_engine_graph_begin(&raw mut graph) })?;
        IS_CAPTURING.set(true);
        Ok(Self { graph: ReplayGraph(graph), _guard: guard })
    }

    /// Ends the capture and returns the captured work.
    ///
    /// # Errors
    /// If the captured work cannot be replayed.
    pub(super) fn end(self) -> Result<ReplayGraph, Failure> {
        IS_CAPTURING.set(false);
        // SAFETY: the graph is alive.
        check(unsafe { layer_engine_graph_end(self.graph.0) })?;
        Ok(self.graph)
    }
}

/// Captured work of a stream that can be replayed: a CUDA graph.
#[derive(Debug)]
pub(super) struct ReplayGraph(*mut c_void);

impl ReplayGraph {
    /// Replays the work `rounds` times in `stream` and waits. Returns the time of all replays
    /// together in milliseconds, by the device's clock.
    ///
    /// # Errors
    /// If a replay fails.
    pub(super) fn time(&mut self, stream: Stream, rounds: u32) -> Result<f64, Failure> {
        let mut milliseconds = 0.0;
        // SAFETY: the graph is alive, and the call writes to the pointer.
        check(unsafe {
            layer_engine_graph_time(self.0, stream.device, stream.id, rounds, &raw mut milliseconds)
        })?;
        Ok(milliseconds)
    }
}

impl Drop for ReplayGraph {
    fn drop(&mut self) {
        // SAFETY: the pointer comes from `layer_engine_graph_begin` and is freed once.
        unsafe { layer_engine_graph_free(self.0) };
    }
}

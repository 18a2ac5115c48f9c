//! Stream captures, which turn work into nodes of a graph. Captures are numbered from 1.

use super::Handle;
use std::{collections::BTreeMap, thread::ThreadId};

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`: unsafe calls of all threads are refused during the capture.
pub(super) const GLOBAL: u32 = 0;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`: unsafe calls are not refused during the capture.
pub(super) const RELAXED: u32 = 2;

/// The captures in progress.
#[derive(Default)]
pub(crate) struct Captures {
    /// Captures in progress, by number.
    pub(super) alive: BTreeMap<u64, Capture>,
    /// Number of captures that have begun, which is the number of the last one.
    pub(super) begun: u64,
}

/// Capture in progress.
pub(super) struct Capture {
    /// Stream in which the capture began and must end.
    pub(super) origin: Handle,
    /// Graph to which the captured work is added.
    pub(super) graph: Handle,
    /// Capture mode, a `CUstreamCaptureMode`.
    pub(super) mode: u32,
    /// Thread that began the capture.
    pub(super) thread: ThreadId,
    /// Whether an error has invalidated the capture, so that its end returns no graph.
    pub(super) invalid: bool,
}

/// Membership of a stream in a capture.
pub(crate) struct Membership {
    /// Number of the capture.
    pub(super) capture: u64,
    /// Nodes of the graph on which the next node of the stream depends.
    pub(super) last_nodes: Vec<Handle>,
}

/// Record of an event in a capture. It stands for nodes of the graph instead of a time.
#[derive(Clone)]
pub(crate) struct CapturedRecord {
    /// Number of the capture.
    pub(super) capture: u64,
    /// Nodes of the graph on which work depends that waits for the record.
    pub(super) last_nodes: Vec<Handle>,
}

impl Captures {
    /// Invalidates the capture with the given number. Nothing happens if it has ended.
    pub(super) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.alive.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// Returns the streams in which the captures in progress began.
    pub(super) fn origins(&self) -> impl Iterator<Item = Handle> {
        self.alive.values().map(|capture| capture.origin)
    }

    /// Returns whether the capture with the given number is invalid or has ended.
    pub(super) fn is_invalid(&self, capture: u64) -> bool {
        self.alive.get(&capture).is_none_or(|capture| capture.invalid)
    }
}

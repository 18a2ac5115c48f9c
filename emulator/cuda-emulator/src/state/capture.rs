//! Stream captures, which turn work into nodes of a graph.

use super::Handle;
use std::{collections::BTreeMap, thread::ThreadId};

pub(super) const GLOBAL: u32 = 0;
pub(super) const RELAXED: u32 = 2;

/// The captures in progress.
#[derive(Default)]
pub(crate) struct Captures {
    pub(super) alive: BTreeMap<u64, Capture>,
    pub(super) begun: u64,
}

pub(super) struct Capture {
    /// The stream in which the capture began and must end.
    pub(super) origin: Handle,
    pub(super) graph: Handle,
    pub(super) mode: u32,
    pub(super) thread: ThreadId,
    pub(super) invalid: bool,
}

/// Membership of a stream in a capture.
pub(crate) struct Membership {
    pub(super) capture: u64,
    /// Dependencies of the stream's next node.
    pub(super) last_nodes: Vec<Handle>,
}

/// A record of an event in a capture. It stands for nodes of the graph.
#[derive(Clone)]
pub(crate) struct CapturedRecord {
    pub(super) capture: u64,
    pub(super) last_nodes: Vec<Handle>,
}

impl Captures {
    pub(super) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.alive.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// Returns the origin streams of the captures in progress.
    pub(super) fn origins(&self) -> impl Iterator<Item = Handle> {
        self.alive.values().map(|capture| capture.origin)
    }

    pub(super) fn is_invalid(&self, capture: u64) -> bool {
        self.alive.get(&capture).is_none_or(|capture| capture.invalid)
    }
}

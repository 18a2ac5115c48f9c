//! Captures: work put into a graph instead of a stream.

use super::Handle;
use std::{collections::BTreeMap, thread::ThreadId};

pub(super) const GLOBAL: u32 = 0;
pub(super) const RELAXED: u32 = 2;

/// The captures that have not ended.
#[derive(Default)]
pub(crate) struct Captures {
    pub(super) alive: BTreeMap<u64, Capture>,
    pub(super) begun: u64,
}

pub(super) struct Capture {
    /// The stream in which it has to end.
    pub(super) origin: Handle,
    pub(super) graph: Handle,
    pub(super) mode: u32,
    pub(super) thread: ThreadId,
    pub(super) invalid: bool,
}

/// A stream's part in a capture.
pub(crate) struct Membership {
    pub(super) capture: u64,
    /// What the stream's next node depends on.
    pub(super) tips: Vec<Handle>,
}

/// What an event stands for that was recorded in a capture.
#[derive(Clone)]
pub(crate) struct CapturedRecord {
    pub(super) capture: u64,
    pub(super) tips: Vec<Handle>,
}

impl Captures {
    pub(super) fn invalidate(&mut self, capture: u64) {
        if let Some(capture) = self.alive.get_mut(&capture) {
            capture.invalid = true;
        }
    }

    /// The streams whose captures have not ended.
    pub(super) fn origins(&self) -> impl Iterator<Item = Handle> {
        self.alive.values().map(|capture| capture.origin)
    }

    pub(super) fn is_invalid(&self, capture: u64) -> bool {
        self.alive.get(&capture).is_none_or(|capture| capture.invalid)
    }
}

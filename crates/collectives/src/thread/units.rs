//! Work that several threads divide among themselves.

use super::sync::{AtomicUsize, Ordering};

/// Independent units of work, numbered from 0. Each is executed once, by the thread that claims it.
#[derive(Debug)]
pub(super) struct Units {
    count: usize,
    taken: AtomicUsize,
    unfinished: AtomicUsize,
    /// Member that panicked in a unit, or `NONE`.
    panicked_member: AtomicUsize,
}

const NONE: usize = usize::MAX;

impl Units {
    /// Creates `count` units that no thread has claimed.
    pub(super) fn new(count: usize) -> Self {
        Self {
            count,
            taken: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(count),
            panicked_member: AtomicUsize::new(NONE),
        }
    }

    /// Number of units.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Claims a unit for the calling thread and returns its number. `None` if all are claimed.
    pub(super) fn claim(&self) -> Option<usize> {
        // A load first keeps waiting threads from contending for the cache line.
        if self.taken.load(Ordering::Relaxed) >= self.count {
            return None;
        }
        let unit = self.taken.fetch_add(1, Ordering::Relaxed);
        (unit < self.count).then_some(unit)
    }

    /// Records that a claimed unit is finished. Returns whether it was the last one.
    pub(super) fn finish(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all units are finished. A thread that sees `true` also sees their results.
    pub(super) fn are_finished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Records that the member at slot `member` panicked in a unit. The unit then never finishes.
    pub(super) fn abandon(&self, member: usize) {
        self.panicked_member.store(member, Ordering::Release);
    }

    /// Returns the slot of a member that panicked in a unit, or `None`.
    pub(super) fn panicked_member(&self) -> Option<usize> {
        Some(self.panicked_member.load(Ordering::Acquire)).filter(|&member| member != NONE)
    }
}

//! Work that several threads divide among themselves.

use super::sync::{AtomicUsize, Ordering};

/// A number of independent units of work, each done once by the thread that takes it.
#[derive(Debug)]
pub(super) struct Units {
    count: usize,
    taken: AtomicUsize,
    unfinished: AtomicUsize,
    /// The member that panicked in a unit, or `NONE`.
    broken_by: AtomicUsize,
}

const NONE: usize = usize::MAX;

impl Units {
    pub(super) fn new(count: usize) -> Self {
        Self {
            count,
            taken: AtomicUsize::new(0),
            unfinished: AtomicUsize::new(count),
            broken_by: AtomicUsize::new(NONE),
        }
    }

    /// A unit that no other thread gets.
    pub(super) fn take(&self) -> Option<usize> {
        // Looking first keeps those that only wait from fighting for the cache line.
        if self.taken.load(Ordering::Relaxed) >= self.count {
            return None;
        }
        let unit = self.taken.fetch_add(1, Ordering::Relaxed);
        (unit < self.count).then_some(unit)
    }

    /// Counts a taken unit as done; whether it was the last.
    pub(super) fn finish(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all are done. A thread that sees it also sees what was done.
    pub(super) fn are_finished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Writes down that a member will never finish a unit that it took.
    pub(super) fn give_up(&self, member: usize) {
        self.broken_by.store(member, Ordering::Release);
    }

    /// The member because of which the work will never be finished.
    pub(super) fn broken_by(&self) -> Option<usize> {
        Some(self.broken_by.load(Ordering::Acquire)).filter(|&member| member != NONE)
    }
}

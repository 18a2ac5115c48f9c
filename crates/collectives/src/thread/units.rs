//! Work that whoever has time divides among themselves.

use super::sync::{AtomicUsize, Ordering};

/// A number of independent units of work, each done once by whoever takes it.
#[derive(Debug)]
pub(super) struct Units {
    count: usize,
    taken: AtomicUsize,
    unfinished: AtomicUsize,
}

impl Units {
    pub(super) fn new(count: usize) -> Self {
        Self { count, taken: AtomicUsize::new(0), unfinished: AtomicUsize::new(count) }
    }

    /// A unit that nobody else gets.
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

    /// Whether all are done. Whoever sees it sees also what was done.
    pub(super) fn are_finished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }
}

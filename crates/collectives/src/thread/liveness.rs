//! Record of the ranks that have ended. The *world* is the set of all ranks.

use super::sync::{AtomicU8, AtomicUsize, Ordering};
use crate::Departure;

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const PANICKED: u8 = 2;

/// Record of the ranks of a world that have ended, and how.
#[derive(Debug)]
pub(super) struct Liveness {
    ranks: Vec<AtomicU8>,
    departures: AtomicUsize,
    /// Rank that panicked first, or `NONE`.
    first_panic: AtomicUsize,
}

const NONE: usize = usize::MAX;

impl Liveness {
    /// Creates the record of `size` ranks, of which none has ended.
    pub(super) fn new(size: usize) -> Self {
        Self {
            ranks: (0..size).map(|_| AtomicU8::new(PRESENT)).collect(),
            departures: AtomicUsize::new(0),
            first_panic: AtomicUsize::new(NONE),
        }
    }

    /// Records that a rank of the world has ended, and how.
    pub(super) fn depart(&self, rank: usize, how: Departure) {
        let state = match how {
            Departure::Left | Departure::Lost => LEFT,
            Departure::Panicked => PANICKED,
        };
        if state == PANICKED {
            // Visible to a thread that sees the departure. Only the first panic is recorded.
            let relaxed = Ordering::Relaxed;
            let _ = self.first_panic.compare_exchange(NONE, rank, relaxed, relaxed);
        }
        self.ranks[rank].store(state, Ordering::Release);
        self.departures.fetch_add(1, Ordering::Release);
    }

    /// Number of ranks that have ended. A thread that reads it sees all of these departures.
    pub(super) fn departures(&self) -> usize {
        self.departures.load(Ordering::Acquire)
    }

    /// Returns the rank that panicked first, or `None` if no rank has panicked.
    pub(super) fn first_panic(&self) -> Option<usize> {
        Some(self.first_panic.load(Ordering::Relaxed)).filter(|&rank| rank != NONE)
    }

    /// Returns the rank because of which an operation that waits for the ranks `missing` cannot
    /// complete, and how that rank ended. `None` if it can still complete. A panic of any rank
    /// fails every incomplete operation and takes precedence, even if the missing ranks are others.
    /// Ranks are those of the world.
    pub(super) fn cause_of_failure(&self, missing: &[usize]) -> Option<(usize, Departure)> {
        let left = |rank: usize| self.ranks[rank].load(Ordering::Acquire) == LEFT;
        self.first_panic()
            .map(|rank| (rank, Departure::Panicked))
            .or_else(|| missing.iter().find(|&&rank| left(rank)).map(|&rank| (rank, Departure::Left)))
    }
}

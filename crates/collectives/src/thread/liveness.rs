//! Which ranks have ended.

use super::sync::{AtomicU8, AtomicUsize, Ordering};
use crate::Departure;

const PRESENT: u8 = 0;
const LEFT: u8 = 1;
const PANICKED: u8 = 2;

/// Which ranks of a world have ended, and how.
#[derive(Debug)]
pub(super) struct Liveness {
    ranks: Vec<AtomicU8>,
    departures: AtomicUsize,
    /// The rank that panicked first, or `NOBODY`.
    first_panic: AtomicUsize,
}

const NOBODY: usize = usize::MAX;

impl Liveness {
    pub(super) fn new(size: usize) -> Self {
        Self {
            ranks: (0..size).map(|_| AtomicU8::new(PRESENT)).collect(),
            departures: AtomicUsize::new(0),
            first_panic: AtomicUsize::new(NOBODY),
        }
    }

    /// Writes down that a rank has ended.
    pub(super) fn depart(&self, rank: usize, how: Departure) {
        let state = match how {
            Departure::Left | Departure::Lost => LEFT,
            Departure::Panicked => PANICKED,
        };
        if state == PANICKED {
            // Seen by whoever sees the departure. Only the first one is written down.
            let relaxed = Ordering::Relaxed;
            let _ = self.first_panic.compare_exchange(NOBODY, rank, relaxed, relaxed);
        }
        self.ranks[rank].store(state, Ordering::Release);
        self.departures.fetch_add(1, Ordering::Release);
    }

    /// How many ranks have ended: whoever has seen this number has not missed an earlier departure.
    pub(super) fn departures(&self) -> usize {
        self.departures.load(Ordering::Acquire)
    }

    /// The rank that panicked before any other did.
    pub(super) fn first_panic(&self) -> Option<usize> {
        Some(self.first_panic.load(Ordering::Relaxed)).filter(|&rank| rank != NOBODY)
    }

    /// Whom an operation that still waits for `missing` waits for in vain. A panic anywhere ends every operation that is
    /// not complete: the rank that panicked is the cause, even where the missing one is only a victim.
    pub(super) fn casualty(&self, missing: &[usize]) -> Option<(usize, Departure)> {
        let left = |rank: usize| self.ranks[rank].load(Ordering::Acquire) == LEFT;
        self.first_panic()
            .map(|rank| (rank, Departure::Panicked))
            .or_else(|| missing.iter().find(|&&rank| left(rank)).map(|&rank| (rank, Departure::Left)))
    }
}

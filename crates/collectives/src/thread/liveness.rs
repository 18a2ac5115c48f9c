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
}

impl Liveness {
    pub(super) fn new(size: usize) -> Self {
        Self { ranks: (0..size).map(|_| AtomicU8::new(PRESENT)).collect(), departures: AtomicUsize::new(0) }
    }

    /// Writes down that a rank has ended.
    pub(super) fn depart(&self, rank: usize, how: Departure) {
        let state = match how {
            Departure::Left | Departure::Lost => LEFT,
            Departure::Panicked => PANICKED,
        };
        self.ranks[rank].store(state, Ordering::Release);
        self.departures.fetch_add(1, Ordering::Release);
    }

    /// How many ranks have ended: whoever has seen this number has not missed an earlier departure.
    pub(super) fn departures(&self) -> usize {
        self.departures.load(Ordering::Acquire)
    }

    /// Whom an operation that still waits for `missing` waits for in vain. A panic anywhere ends every operation that is
    /// not complete: the rank that panicked is the cause, even where the missing one is only a victim.
    pub(super) fn casualty(&self, missing: &[usize]) -> Option<(usize, Departure)> {
        let state = |rank: usize| self.ranks[rank].load(Ordering::Acquire);
        let panicked = (0..self.ranks.len()).find(|&rank| state(rank) == PANICKED);
        panicked.map(|rank| (rank, Departure::Panicked)).or_else(|| {
            missing.iter().find(|&&rank| state(rank) == LEFT).map(|&rank| (rank, Departure::Left))
        })
    }
}

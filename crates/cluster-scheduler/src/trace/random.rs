//! The random generator of traces.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Random number generator with the same sequence on every machine.
pub(super) struct Random(ChaCha8Rng);

impl Random {
    /// Creates a generator from a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// Returns a uniformly distributed number, at least 0 and less than 1.
    pub(super) fn fraction(&mut self) -> f64 {
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random integer in `0..count`, or 0 if `count` is 0.
    pub(super) fn below(&mut self, count: usize) -> usize {
        ((self.fraction() * count as f64) as usize).min(count.saturating_sub(1))
    }
}

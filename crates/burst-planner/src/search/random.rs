//! Random numbers of the search.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::RngCore;

/// Returns a number from 0 to `count` - 1, drawn uniformly. `count` is at least 1.
pub(super) fn below(random: &mut ChaCha8Rng, count: usize) -> usize {
    ((u64::from(random.next_u32()) * count as u64) >> 32) as usize
}

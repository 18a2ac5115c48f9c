//! Randomness that does not depend on which rank draws it: a counter-based generator whose key says what the numbers
//! are for.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// What random numbers are for. Streams of different purposes are independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Initial values of parameters.
    Initialisation = 1,
    /// Masks of dropout layers.
    Dropout = 2,
    /// The order of the training samples.
    Shuffle = 3,
    /// Synthetic data.
    Synthetic = 4,
    /// Which of several programs an iteration executes.
    Turns = 5,
}

/// A stream of random numbers, keyed by what it is for.
#[derive(Debug, Clone)]
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// The stream of one sample (or of index 0, where there are no samples) for a purpose, in an iteration, of the
    /// layer or parameter of this name.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, iteration: u64, name: &str, sample: u64) -> Self {
        let mut generator = ChaCha8Rng::from_seed(Self::key(seed, purpose, iteration, name));
        generator.set_stream(sample);
        Self(generator)
    }

    /// The key of these streams, for other implementations of `ChaCha`: samples are its nonces.
    #[must_use]
    pub fn key(seed: u64, purpose: Purpose, iteration: u64, name: &str) -> [u8; 32] {
        let mut key = [0; 32];
        for (part, word) in key.chunks_exact_mut(8).zip([seed, purpose as u64, iteration, fnv1a(name)]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        key
    }

    /// What a name is in a key.
    #[cfg(feature = "cuda")]
    pub(crate) fn name_key(name: &str) -> u64 {
        fnv1a(name)
    }

    /// A number from the uniform distribution on `0.0..1.0`.
    pub fn uniform(&mut self) -> f64 {
        // 53 random bits fill a double's mantissa.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number from `0..bound`, or 0 when the bound is 0. The bias is below `bound / 2^64`.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Puts items into a random order (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// FNV-1a (Fowler, Noll, Vo): a stable hash, so that a name means the same stream in every version.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

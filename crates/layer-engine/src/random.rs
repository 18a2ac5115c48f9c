//! Random numbers that do not depend on the rank that draws them: a counter-based generator, keyed
//! by the purpose of the numbers.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// Purpose of random numbers, part of the key of their stream. Streams of different purposes are
/// independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Purpose {
    /// Initial values of parameters.
    Initialisation = 1,
    /// Elements that dropout layers set to zero.
    Dropout = 2,
    /// Order of the training samples.
    Shuffle = 3,
    /// Samples and labels of synthetic data.
    Synthetic = 4,
    /// Choice of the program that an iteration runs, if there are several.
    Schedule = 5,
}

/// A sequence of random numbers that is determined by seed, purpose, iteration, name and sample
/// (the `ChaCha8` generator).
#[derive(Debug, Clone)]
pub struct RandomStream(ChaCha8Rng);

impl RandomStream {
    /// Returns the stream of a sample for a purpose and iteration (for [`Purpose::Shuffle`], the
    /// epoch). `name` is the name of the layer or parameter; `sample` is the index of the sample in
    /// the global batch or data set, or 0 if the numbers do not belong to a sample.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose, iteration: u64, name: &str, sample: u64) -> Self {
        let mut generator = ChaCha8Rng::from_seed(Self::key(seed, purpose, iteration, name));
        generator.set_stream(sample);
        Self(generator)
    }

    /// Returns the `ChaCha` key of these streams, for other implementations of the generator: seed,
    /// purpose, iteration and the FNV-1a hash of the name, as little-endian 64-bit words. The index
    /// of the sample is the nonce.
    #[must_use]
    pub fn key(seed: u64, purpose: Purpose, iteration: u64, name: &str) -> [u8; 32] {
        let mut key = [0; 32];
        for (part, word) in key.chunks_exact_mut(8).zip([seed, purpose as u64, iteration, fnv1a(name)]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        key
    }

    /// Returns the 64-bit word of a key that stands for a name: its FNV-1a hash.
    #[cfg(feature = "cuda")]
    pub(crate) fn name_key(name: &str) -> u64 {
        fnv1a(name)
    }

    /// Moves to the number with this index, from 0, of those that [`uniform`](Self::uniform) draws.
    pub fn seek(&mut self, index: u64) {
        // A number takes two words.
        self.0.set_word_pos(2 * u128::from(index));
    }

    /// Draws a number from the uniform distribution on `0.0..1.0`.
    pub fn uniform(&mut self) -> f64 {
        // 53 random bits fill a double's mantissa.
        (self.0.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Draws a number in `0..bound` with equal probabilities, up to a bias below `bound / 2^64`.
    /// Returns 0 if `bound` is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        ((u128::from(self.0.next_u64()) * bound as u128) >> 64) as usize
    }

    /// Permutes the items at random, with equal probabilities (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// Computes the FNV-1a hash (Fowler, Noll, Vo) of a name. The hash is the same in every version, so
/// streams are too.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

//! Pseudo-random order of warps and blocks.

/// Random number generator (`SplitMix64`) for the order of execution.
#[derive(Clone)]
pub(crate) struct ShuffleRng {
    state: u64,
}

impl ShuffleRng {
    /// Creates a generator. Equal pairs of `seed` and `stream` yield equal sequences; different
    /// streams of a seed yield different ones.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        Self { state: seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95) }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a random number below `end`, which must not be 0.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Shuffles the items (Fisher-Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

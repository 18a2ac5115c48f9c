//! Vector clocks.

/// Number of tasks of each chain that are known to be complete, by the chain's index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock(Vec<u64>);

impl VectorClock {
    pub(in crate::state) fn get(&self, chain: usize) -> u64 {
        self.0.get(chain).copied().unwrap_or(0)
    }

    pub(in crate::state) fn set(&mut self, chain: usize, count: u64) {
        if self.0.len() <= chain {
            self.0.resize(chain + 1, 0);
        }
        self.0[chain] = count;
    }

    /// Takes the maximum of both clocks for each chain.
    pub(in crate::state) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Returns whether this clock is at least `other` for each chain.
    pub(in crate::state) fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(chain, count)| self.get(chain) >= *count)
    }
}

//! Vector clocks, which describe sets of tasks. The tasks of a chain are ordered and numbered from
//! 1; a clock contains the first tasks of each chain.

/// Set of tasks: for each chain, by its index, the number of its first tasks that are in the set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VectorClock(Vec<u64>);

impl VectorClock {
    /// Returns the number of tasks of a chain that are in the set.
    pub(in crate::state) fn get(&self, chain: usize) -> u64 {
        self.0.get(chain).copied().unwrap_or(0)
    }

    /// Sets the number of tasks of a chain that are in the set.
    pub(in crate::state) fn set(&mut self, chain: usize, count: u64) {
        if self.0.len() <= chain {
            self.0.resize(chain + 1, 0);
        }
        self.0[chain] = count;
    }

    /// Adds the tasks of another set.
    pub(in crate::state) fn join(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (own, other) in self.0.iter_mut().zip(&other.0) {
            *own = (*own).max(*other);
        }
    }

    /// Returns whether the set contains all tasks of another set.
    pub(in crate::state) fn covers(&self, other: &Self) -> bool {
        other.0.iter().enumerate().all(|(chain, count)| self.get(chain) >= *count)
    }
}

//! Capacities of the levels of links.

use super::LinkModel;

/// Capacity of the links of the members of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct LevelLinks {
    /// Number of ranks of a member: 1 on the first level.
    pub(crate) member_ranks: usize,
    /// Number of adapters of a member.
    pub(crate) adapters: usize,
    /// Bandwidth of an adapter in one direction, in bytes per second.
    pub(crate) bytes_per_s: f64,
}

impl LinkModel {
    /// Returns the capacity of the links of each level, from the innermost level.
    pub(crate) fn level_links(&self) -> Vec<LevelLinks> {
        let members = [1].into_iter().chain(self.unit_sizes());
        let links = self.levels.iter().zip(members).map(|(level, member_ranks)| LevelLinks {
            member_ranks: member_ranks.max(1),
            adapters: level.adapters,
            bytes_per_s: level.bandwidth_bytes_per_s,
        });
        links.collect()
    }

    /// Whether operations use several levels at the same time.
    pub(crate) fn is_pipelined(&self) -> bool {
        self.pipelined
    }
}

//! Costs of operations that several groups of ranks perform at the same time. A *level* of links
//! connects *members*: the first level the ranks of a host, the second the hosts of a cluster or
//! rack.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{CollectiveKind, LinkModel};

impl LinkModel {
    /// Returns the time of an operation that each of several groups of ranks performs on its own,
    /// all at the same time. `ranks` are the lists of the groups one after another: `groups` lists
    /// of equal length. If their number is no divisor, the last list is shorter; 0 groups count as
    /// one. `bytes` are those of one group, as in [`cost`](Self::cost).
    ///
    /// It is the time of the slowest group. The groups share the adapters of a host (or of a member
    /// of an outer level): if they would use more adapters than the host has, each has the same
    /// fraction of the bandwidth of its own. They do not disturb each other on the links inside of
    /// a host. The time is never less than that of one group [alone](Self::cost_among).
    /// O(levels x ranks x log ranks).
    ///
    /// ```
    /// use collectives::{CollectiveKind, LinkModel};
    ///
    /// // Hosts of two ranks that share one adapter.
    /// let hosts = LinkModel::dgx_a100().between_hosts(2, LinkModel::ethernet_100g())?;
    /// let time = |ranks: &[usize], groups| {
    ///     hosts.cost_in_groups(CollectiveKind::AllReduce, ranks, groups, 1 << 30)
    /// };
    /// assert!(time(&[0, 2, 1, 3], 2) > time(&[0, 2], 1).mul_f64(1.9));
    /// assert_eq!(time(&[0, 1, 2, 3], 2), time(&[0, 1], 1));
    /// # Ok::<(), collectives::Error>(())
    /// ```
    #[must_use]
    pub fn cost_in_groups(
        &self,
        collective: CollectiveKind,
        ranks: &[usize],
        groups: usize,
        bytes: u64,
    ) -> Duration {
        let group_len = ranks.len().div_ceil(groups.max(1)).max(1);
        let groups: Vec<&[usize]> = ranks.chunks(group_len).collect();
        let alone = groups.iter().map(|group| self.cost_among(collective, group, bytes)).max();
        let fractions = if groups.len() > 1 { self.fractions(&groups) } else { Vec::new() };
        let disturbed =
            groups.iter().zip(&fractions).filter(|(_, of_levels)| of_levels.iter().any(|&f| f < 1.0));
        let shared =
            disturbed.map(|(group, of_levels)| self.cost_with(collective, group, bytes, of_levels)).max();
        // Groups that share no adapter count, too. So do the others without the rest: the algorithm
        // that is chosen for less bandwidth may not be slower on all levels.
        alone.max(shared).unwrap_or_default()
    }

    /// Returns for each group, then by level of links, the fraction of the bandwidth that it has
    /// while all groups use their links.
    fn fractions(&self, groups: &[&[usize]]) -> Vec<Vec<f64>> {
        let mut fractions = vec![vec![1.0]; groups.len()];
        // A member of the first level is a rank, which is in one group.
        for (level, size) in self.levels[1..].iter().zip(self.unit_sizes()) {
            // The adapters that the group uses in each of its members, and these members.
            let use_of = |group: &&[usize]| {
                let mut members: Vec<usize> = group.iter().map(|rank| rank / size).collect();
                members.sort_unstable();
                let ranks = members.chunk_by(|a, b| a == b).map(<[usize]>::len).min().unwrap_or(0);
                members.dedup();
                if members.len() > 1 { (ranks.min(level.adapters), members) } else { (0, Vec::new()) }
            };
            let uses: Vec<(usize, Vec<usize>)> = groups.iter().map(use_of).collect();
            let mut demand: BTreeMap<usize, usize> = BTreeMap::new();
            for (adapters, members) in &uses {
                for &member in members {
                    *demand.entry(member).or_default() += adapters;
                }
            }
            for (of_group, (_, members)) in fractions.iter_mut().zip(&uses) {
                let busiest = members.iter().map(|member| demand[member]).max().unwrap_or(0);
                of_group.push(level.adapters as f64 / busiest.max(level.adapters) as f64);
            }
        }
        fractions
    }
}

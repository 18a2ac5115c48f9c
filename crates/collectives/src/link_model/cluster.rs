//! Costs of operations over several levels of links. A *level* connects *members*: the first level
//! the ranks of a host, the second the hosts of a cluster or rack, the third racks. A *unit* of a
//! level is one set of members that it connects: one host on the first level, one rack on the
//! second.

use std::time::Duration;

use super::level::{LevelMembers, Run};
use super::protocol::Protocol;
use super::{Algorithm, CollectiveKind, Level, LinkModel};
use crate::{Error, Result};

/// Placement of a group's ranks on the levels of links, from the innermost level. The cost of an
/// operation depends on it only.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GroupPlacement {
    ranks: usize,
    /// For each level, the maximum number of its members that one unit has in the group, and the
    /// minimum bandwidth of a member. That is the bandwidth of one adapter for each of its ranks in
    /// the group, if the links inside the member can fill them.
    by_level: Vec<LevelMembers>,
    /// Maximum number of ranks of the group in a member of each level.
    ranks_per_member: Vec<usize>,
}

impl LinkModel {
    /// Connects hosts of `ranks_per_host` ranks, each with these links inside, by `network`.
    ///
    /// Ranks 0, 1, ... fill one host after another. Bandwidth, startup time and latency of the
    /// network are those of a host, whose ranks share them. If the network has [several
    /// adapters](Self::with_adapters) a host, a rank uses one of them. Operations run inside each
    /// host, then between hosts (each rank with its part of the bytes), then inside again. Their
    /// times add up unless the model is [pipelined](Self::pipelined). An all-reduce is a
    /// reduce-scatter, an all-reduce of the parts, and an all-gather. The costs within one host do
    /// not change.
    ///
    /// A second call adds an outer level, whose members are hosts instead of ranks: racks of hosts.
    ///
    /// # Errors
    /// [`Error::NoRanksPerHost`] if `ranks_per_host` is zero, [`Error::TooManyRanks`] if a host has
    /// more than its [maximum number of ranks](Self::max_ranks).
    pub fn between_hosts(self, ranks_per_host: usize, network: LinkModel) -> Result<Self> {
        let name = format!("{} between hosts of {ranks_per_host} ranks on {}", network.name, self.name);
        if ranks_per_host == 0 {
            return Err(Error::NoRanksPerHost { name });
        }
        self.check_ranks(ranks_per_host.saturating_mul(self.ranks_per_outer_member()))?;
        Ok(self.joined_by(ranks_per_host, network).with_name(&name))
    }

    /// Connects units of this model, each of `members` members of its outermost level, by
    /// `network`, and keeps the name. The caller has checked that a unit does not exceed this
    /// model's maximum number of ranks.
    pub(super) fn joined_by(mut self, members: usize, network: LinkModel) -> Self {
        let ranks = members.saturating_mul(self.ranks_per_outer_member());
        if let Some(last) = self.levels.last_mut() {
            last.ranks = Some(ranks);
        }
        let outside =
            |level: Level| Level { ranks: level.ranks.map(|hosts| hosts.saturating_mul(ranks)), ..level };
        self.levels.extend(network.levels.into_iter().map(outside));
        self.pipelined |= network.pipelined;
        self.error = self.error.zip(network.error).map(|(inside, outside)| inside.max(outside));
        self
    }

    /// Returns the number of ranks of one member of the outermost level.
    pub(super) fn ranks_per_outer_member(&self) -> usize {
        let inside = self.levels.len().checked_sub(2).and_then(|level| self.levels[level].ranks);
        inside.unwrap_or(1)
    }

    /// Lets operations over several hosts use all levels of links at the same time.
    ///
    /// They are then rings or trees over all ranks, and take the startup times and latencies of all
    /// levels plus the transfer time of the slowest link. In an all-reduce of two hosts, each sends
    /// the bytes once to the other: half of them up each of two trees, and half of them down.
    /// Without this option, the times of the levels add up.
    ///
    /// NCCL works like this, and the built-in clusters do. nccl-tests on two hosts show it: 16 AWS
    /// H100 all-reduce 16 GiB in 66 ms, in which the reduction inside the hosts alone takes 62 ms
    /// and the network at its data-sheet bandwidth 43 ms; 16 AWS A100 all-reduce 2 GiB in 51 ms, in
    /// which they take 16 and 43 ms.
    ///
    /// ```
    /// # use collectives::LinkModel;
    /// let hosts = LinkModel::dgx_a100().between_hosts(8, LinkModel::ethernet_100g())?;
    /// let bytes = 553_430_176; // the gradients of VGG-16 in f32
    /// let milliseconds = |link: &LinkModel| link.all_reduce(16, bytes).as_secs_f64() * 1e3;
    /// assert!((51.0..52.0).contains(&milliseconds(&hosts)));
    /// assert!((47.0..48.0).contains(&milliseconds(&hosts.pipelined())));
    /// # Ok::<(), collectives::Error>(())
    /// ```
    #[must_use]
    pub fn pipelined(self) -> Self {
        Self { pipelined: true, ..self }
    }

    /// Maximum number of ranks that the model connects. `None` means any number.
    #[must_use]
    pub fn max_ranks(&self) -> Option<usize> {
        self.levels.last().and_then(|level| level.ranks)
    }

    /// Number of ranks of a host, which the first level of links connects. `None` if there is only
    /// one level of links.
    #[must_use]
    pub fn ranks_per_host(&self) -> Option<usize> {
        if self.levels.len() > 1 { self.levels[0].ranks } else { None }
    }

    /// Number of ranks that each level of links connects, from the innermost level. `None` means
    /// any number.
    #[must_use]
    pub fn ranks_by_level(&self) -> Vec<Option<usize>> {
        self.levels.iter().map(|level| level.ranks).collect()
    }

    /// Checks that the model can connect the given number of ranks.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`] if `ranks` exceeds [`max_ranks`](Self::max_ranks).
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        match self.max_ranks().filter(|&max| ranks > max) {
            Some(max) => Err(Error::TooManyRanks { link: self.name.clone(), max, asked: ranks }),
            None => Ok(()),
        }
    }

    /// Returns the time of an operation among these ranks, whose numbers determine their hosts. See
    /// [`cost`](Self::cost) for ranks `0..n`. O(levels x ranks) for ascending ranks, plus a sort
    /// for others.
    #[must_use]
    pub fn cost_among(&self, collective: CollectiveKind, ranks: &[usize], bytes: u64) -> Duration {
        self.cost_with(collective, ranks, bytes, &[])
    }

    /// Returns the time of an operation among these ranks that has only the given fraction of each
    /// level's bandwidth; 1 for levels that are not listed.
    pub(super) fn cost_with(
        &self,
        collective: CollectiveKind,
        ranks: &[usize],
        bytes: u64,
        fractions: &[f64],
    ) -> Duration {
        match collective {
            _ if ranks.len() <= 1 => Duration::ZERO,
            // A message uses the links of the outermost level that it crosses.
            CollectiveKind::Send => {
                let placement = self.placement(ranks, &[]);
                let level = placement.by_level.iter().rposition(|among| among.members > 1).unwrap_or(0);
                let mut pair = self.levels[level].members(2);
                pair.bandwidth_bytes_per_s *= fractions.get(level).unwrap_or(&1.0);
                self.levels[level].cost(collective, pair, bytes)
            }
            _ => self.cost_of(collective, &self.placement(ranks, fractions), bytes),
        }
    }

    /// Returns the time of an all-reduce of `bytes` among these ranks.
    #[must_use]
    pub fn all_reduce_among(&self, ranks: &[usize], bytes: u64) -> Duration {
        self.cost_among(CollectiveKind::AllReduce, ranks, bytes)
    }

    /// Returns a lower bound on the time of an all-reduce of `bytes` among any `ranks` ranks, on
    /// any hosts. It counts the transfer at the given bandwidths only, without startup times and
    /// latencies. O(ranks).
    #[must_use]
    pub fn all_reduce_lower_bound(&self, ranks: usize, bytes: u64) -> Duration {
        if ranks <= 1 {
            return Duration::ZERO;
        }
        let host = &self.levels[0];
        let per_host = self.ranks_per_host().unwrap_or(ranks);
        // Levels outside of the first network are not counted.
        let on_hosts = |hosts: usize| {
            // One host has at least the average number of ranks. More may have more bandwidth.
            let min_members = ranks.div_ceil(hosts);
            let max_members = (ranks - hosts + 1).min(per_host).max(min_members);
            let inside = (min_members..=max_members)
                .map(|members| host.min_seconds_per_byte(members, 1))
                .fold(f64::INFINITY, f64::min);
            let between = self.levels.get(1).map_or(0.0, |network| {
                network.min_seconds_per_byte(hosts, network.adapters.min(ranks / hosts))
            });
            // An operation on all levels moves at least this number of bytes on each level.
            bytes as f64 * if self.pipelined { inside.max(between) } else { inside + between }
        };
        let min_hosts = self.ranks_per_host().map_or(1, |max| ranks.div_ceil(max));
        let max_hosts = if self.levels.len() > 1 { ranks } else { 1 };
        let seconds = (min_hosts..=max_hosts).map(on_hosts).fold(f64::INFINITY, f64::min);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// Returns the number of ranks in a unit of each level, from the innermost. The outermost level
    /// is assumed to connect any number of ranks (`usize::MAX`); [`check_ranks`](Self::check_ranks)
    /// checks its limit.
    pub(super) fn unit_sizes(&self) -> impl Iterator<Item = usize> {
        let inner = self.levels[..self.levels.len() - 1].iter();
        inner.map(|level| level.ranks.unwrap_or(usize::MAX)).chain([usize::MAX])
    }

    /// Returns the placement of ranks `0..ranks`.
    pub(super) fn placement_of_first(&self, ranks: usize) -> GroupPlacement {
        let mut placement = GroupPlacement::of(ranks, self.levels.len());
        let (mut member, mut inside) = (1, 1);
        for (level, unit) in self.levels.iter().zip(self.unit_sizes()) {
            let members = ranks.min(unit).div_ceil(member);
            // The last member may have fewer ranks and inner members than the others.
            let min_ranks = match ranks % member {
                0 => member.min(ranks),
                rest => rest,
            };
            placement.push(level, 1.0, members, min_ranks, min_ranks.div_ceil(inside), member.min(ranks));
            (inside, member) = (member, unit);
        }
        placement
    }

    /// Returns the placement of these ranks, which have the given fraction of each level's
    /// bandwidth; 1 for levels that are not listed.
    fn placement(&self, ranks: &[usize], fractions: &[f64]) -> GroupPlacement {
        let ascending = ranks.is_sorted_by(|a, b| a < b);
        let is_whole = fractions.is_empty();
        if is_whole && ascending && ranks.first() == Some(&0) && ranks.last() == Some(&(ranks.len() - 1)) {
            return self.placement_of_first(ranks.len());
        }
        let mut sorted;
        let ranks = if ascending {
            ranks
        } else {
            sorted = ranks.to_vec();
            sorted.sort_unstable();
            &sorted
        };
        let mut placement = GroupPlacement::of(ranks.len(), self.levels.len());
        let (mut size, mut inside) = (1, 1);
        for (level, unit_size) in self.levels.iter().zip(self.unit_sizes()) {
            let (mut max_members, mut max_ranks) = (0, 0);
            let (mut min_ranks, mut min_inside) = (usize::MAX, usize::MAX);
            for unit in ranks.chunk_by(|a, b| a / unit_size == b / unit_size) {
                let mut members = 0;
                for member in unit.chunk_by(|a, b| a / size == b / size) {
                    members += 1;
                    (min_ranks, max_ranks) = (min_ranks.min(member.len()), max_ranks.max(member.len()));
                    let inside = member.chunk_by(|a, b| a / inside == b / inside).count();
                    min_inside = min_inside.min(inside);
                }
                max_members = max_members.max(members);
            }
            let fraction = *fractions.get(placement.by_level.len()).unwrap_or(&1.0);
            placement.push(level, fraction, max_members, min_ranks, min_inside, max_ranks);
            (inside, size) = (size, unit_size);
        }
        placement
    }

    /// Returns the time of a collective of a group with the given placement, by the fastest
    /// algorithm on each level.
    pub(super) fn cost_of(
        &self,
        collective: CollectiveKind,
        placement: &GroupPlacement,
        bytes: u64,
    ) -> Duration {
        self.total(collective, placement, bytes, None, |index, level, among, protocol| {
            Self::run_on(collective, placement, bytes, (index, level, among), protocol)
        })
    }

    /// Returns the number of bytes that a member of each level of links sends, and receives, in a
    /// collective among these ranks; 0 for a level that the collective does not use. A message is
    /// no collective. O(levels x ranks) for ascending ranks, plus a sort for others.
    pub(crate) fn bytes_by_level(&self, collective: CollectiveKind, ranks: &[usize], bytes: u64) -> Vec<f64> {
        let mut sent = vec![0.0; self.levels.len()];
        if ranks.len() > 1 {
            let placement = self.placement(ranks, &[]);
            self.total(collective, &placement, bytes, Some(&mut sent), |index, level, among, protocol| {
                Self::run_on(collective, &placement, bytes, (index, level, among), protocol)
            });
        }
        sent
    }

    /// Returns the run of a collective on one level of links by the fastest algorithm. `None` if it
    /// does not use the level.
    fn run_on(
        collective: CollectiveKind,
        placement: &GroupPlacement,
        bytes: u64,
        (index, level, among): (usize, &Level, LevelMembers),
        protocol: Option<Protocol>,
    ) -> Option<Run> {
        // Each rank regroups its bytes by host, then the host's ranks send the bytes of all of
        // them.
        let members =
            if collective == CollectiveKind::AllToAll { placement.ranks_per_member[index] } else { 1 };
        level.run(collective, among, bytes.saturating_mul(members as u64), protocol)
    }

    /// Returns the time of an all-reduce that uses the given algorithm on every level.
    pub(super) fn all_reduce_of(
        &self,
        algorithm: Algorithm,
        placement: &GroupPlacement,
        bytes: u64,
    ) -> Duration {
        self.total(CollectiveKind::AllReduce, placement, bytes, None, |_, level, among, protocol| {
            (among.members > 1).then(|| level.all_reduce_run(algorithm, among, bytes, protocol))
        })
    }

    /// Returns the time of an operation that runs as given on each level. `sent`, if it is given,
    /// is set to the number of bytes that a member of each level sends.
    fn total(
        &self,
        collective: CollectiveKind,
        placement: &GroupPlacement,
        bytes: u64,
        mut sent: Option<&mut [f64]>,
        run: impl Fn(usize, &Level, LevelMembers, Option<Protocol>) -> Option<Run>,
    ) -> Duration {
        let is_used = |among: &LevelMembers| among.members > 1;
        let outermost = placement.by_level.iter().rposition(is_used);
        let levels = || self.levels.iter().zip(&placement.by_level).enumerate();
        let several = placement.by_level.iter().filter(|&among| is_used(among)).count() > 1;
        let overlaps = self.pipelined && several && collective != CollectiveKind::AllToAll;
        if let Some(part) = collective.bus_factor(placement.ranks).filter(|_| overlaps) {
            // One protocol on all levels, which transfer at the same time.
            let with = |protocol: Option<Protocol>, mut sent: Option<&mut [f64]>| {
                let (mut begin, mut slowest) = (Duration::ZERO, Duration::ZERO);
                for (index, (level, &among)) in levels() {
                    let Some(run) = run(index, level, among, protocol) else { continue };
                    // Two hosts are the roots of one tree each, and send half of the bytes in both.
                    let is_pair = Some(index) == outermost && among.members == 2;
                    let factor = match collective {
                        CollectiveKind::AllReduce if is_pair || run.algorithm == Algorithm::Switch => 1.0,
                        _ => part,
                    };
                    begin = begin.saturating_add(run.begin());
                    slowest = slowest.max(run.transfer_of(factor * bytes as f64));
                    if let Some(sent) = &mut sent {
                        sent[index] = factor * bytes as f64;
                    }
                }
                begin.saturating_add(slowest)
            };
            if self.levels.iter().all(|level| level.variants.is_empty()) {
                return with(None, sent);
            }
            let times = Protocol::ALL.map(|protocol| (with(Some(protocol), None), protocol));
            let fastest = times.into_iter().min_by_key(|&(time, _)| time);
            if let (Some(sent), Some((_, protocol))) = (sent, fastest) {
                with(Some(protocol), Some(sent));
            }
            return fastest.map_or(Duration::ZERO, |(time, _)| time);
        }
        let mut total = Duration::ZERO;
        for (index, (level, &among)) in levels() {
            let Some(run) = run(index, level, among, None) else { continue };
            // Inside a host, an all-reduce is two operations: before and after the one between
            // hosts.
            let again = match collective {
                CollectiveKind::AllReduce if Some(index) != outermost => run.startup(),
                CollectiveKind::Barrier if Some(index) != outermost => run.begin(),
                _ => Duration::ZERO,
            };
            total = total.saturating_add(run.begin()).saturating_add(run.transfer()).saturating_add(again);
            if let Some(sent) = &mut sent {
                sent[index] = run.bytes();
            }
        }
        total
    }
}

impl GroupPlacement {
    fn of(ranks: usize, levels: usize) -> Self {
        let (by_level, ranks_per_member) = (Vec::with_capacity(levels), Vec::with_capacity(levels));
        Self { ranks, by_level, ranks_per_member }
    }

    /// Adds the next outer level, of whose bandwidth the group has the given fraction.
    ///
    /// `members` is the maximum number of members of a unit, `min_ranks` and `max_ranks` are the
    /// extremes of the number of ranks of a member, and `min_inside` is the minimum number of
    /// members of the previous level in a member of this one.
    fn push(
        &mut self,
        level: &Level,
        fraction: f64,
        members: usize,
        min_ranks: usize,
        min_inside: usize,
        max_ranks: usize,
    ) {
        let adapters = level.adapters.min(min_ranks) as f64;
        // The bytes that leave a member pass through the links inside of it.
        let inside = self
            .by_level
            .last()
            .map_or(f64::INFINITY, |inside| inside.bandwidth_bytes_per_s * min_inside as f64);
        let bandwidth_bytes_per_s = (level.bandwidth_among(members) * adapters * fraction).min(inside);
        self.by_level.push(LevelMembers { members, bandwidth_bytes_per_s });
        self.ranks_per_member.push(max_ranks);
    }
}

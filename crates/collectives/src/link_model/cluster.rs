//! Several levels of links: within hosts, between the hosts, and so on.

use std::time::Duration;

use super::level::Among;
use super::{Algorithm, CollectiveKind, Level, LinkModel, Steps};
use crate::{Error, Result};

/// Where the ranks of a group are, by level from the inside: nothing else of them matters to what an operation takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Spread {
    ranks: usize,
    /// The most members of a level that any unit of it has in the group; and the bandwidth that the worst off of them has: that of as
    /// many adapters as it has ranks in the group, if the links inside of it can fill them.
    by_level: Vec<Among>,
    /// The most ranks of the group in any member of a level.
    ranks_per_member: Vec<usize>,
}

impl LinkModel {
    /// These links within each host of `ranks_per_host` ranks, and `network` between the hosts.
    ///
    /// Ranks 0, 1, ... fill one host after another. Bandwidth, startup and latency of the network are a host's, which its ranks
    /// share; a network [with several adapters](Self::with_adapters) a host gives one rank one of them. Operations go inside each
    /// host, then between hosts (each rank with its part of the bytes), then inside again; each of these is paid in full, unless
    /// they are [pipelined](Self::pipelined). An
    /// all-reduce is a reduce-scatter, an all-reduce of the parts, and an all-gather. Within one host, everything costs what it
    /// cost before.
    ///
    /// Called again, it adds a level on the outside, of so many hosts instead of ranks: a rack's.
    ///
    /// # Errors
    /// Hosts without ranks, or more of them than [are connected](Self::most_ranks) in one.
    pub fn between_hosts(self, ranks_per_host: usize, network: LinkModel) -> Result<Self> {
        let name = format!("{} between hosts of {ranks_per_host} ranks on {}", network.name, self.name);
        if ranks_per_host == 0 {
            return Err(Error::NoRanksPerHost { name });
        }
        self.check_ranks(ranks_per_host.saturating_mul(self.ranks_inside()))?;
        Ok(self.joined_by(ranks_per_host, network).named_as(&name))
    }

    /// The same under its own name, where it is known that so many are connected.
    pub(super) fn joined_by(mut self, members: usize, network: LinkModel) -> Self {
        let ranks = members.saturating_mul(self.ranks_inside());
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

    /// Ranks of a member of the outermost level.
    pub(super) fn ranks_inside(&self) -> usize {
        let inside = self.levels.len().checked_sub(2).and_then(|level| self.levels[level].ranks);
        inside.unwrap_or(1)
    }

    /// Operations through several hosts are rings (or trees) through all of their ranks, whose bytes are on all levels at the same
    /// time: they take as long as the slowest link that they pass, beside the startups and latencies of the levels. NCCL works so; how
    /// near it comes depends on the machine. Without this, each level is paid in full, one after another.
    ///
    /// ```
    /// # use collectives::LinkModel;
    /// let pod = LinkModel::dgx_a100_pod();
    /// let bytes = 553_430_176; // the gradients of VGG-16 in f32
    /// let milliseconds = |link: &LinkModel| link.all_reduce(16, bytes).as_secs_f64() * 1e3;
    /// assert!((7.0..7.2).contains(&milliseconds(&pod)));
    /// assert!((5.4..5.6).contains(&milliseconds(&pod.pipelined())));
    /// ```
    #[must_use]
    pub fn pipelined(self) -> Self {
        Self { pipelined: true, ..self }
    }

    /// How many ranks these links connect; `None` is any number.
    #[must_use]
    pub fn most_ranks(&self) -> Option<usize> {
        self.levels.last().and_then(|level| level.ranks)
    }

    /// Ranks of a host, where there are several levels of links: those whose links are the innermost ones.
    #[must_use]
    pub fn ranks_per_host(&self) -> Option<usize> {
        if self.levels.len() > 1 { self.levels[0].ranks } else { None }
    }

    /// How many ranks each level of links connects, from the inside; `None` is any number.
    #[must_use]
    pub fn ranks_by_level(&self) -> Vec<Option<usize>> {
        self.levels.iter().map(|level| level.ranks).collect()
    }

    /// Checks that so many ranks are connected.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`].
    pub fn check_ranks(&self, ranks: usize) -> Result<()> {
        match self.most_ranks().filter(|&most| ranks > most) {
            Some(most) => Err(Error::TooManyRanks { link: self.name.clone(), most, asked: ranks }),
            None => Ok(()),
        }
    }

    /// An operation among these ranks, wherever they are; see [`cost`](Self::cost) for ranks `0..n`. O(levels x ranks), more where
    /// the ranks are not ascending.
    #[must_use]
    pub fn cost_among(&self, collective: CollectiveKind, ranks: &[usize], bytes: u64) -> Duration {
        match collective {
            _ if ranks.len() <= 1 => Duration::ZERO,
            // By the links of the outermost level that it passes.
            CollectiveKind::Send => {
                let spread = self.spread(ranks);
                let level = spread.by_level.iter().rposition(|among| among.members > 1).unwrap_or(0);
                self.levels[level].cost(collective, self.levels[level].among(2), bytes)
            }
            _ => self.cost_of(collective, &self.spread(ranks), bytes),
        }
    }

    /// An all-reduce of `bytes` on each of these ranks, wherever they are.
    #[must_use]
    pub fn all_reduce_among(&self, ranks: &[usize], bytes: u64) -> Duration {
        self.cost_among(CollectiveKind::AllReduce, ranks, bytes)
    }

    /// What an all-reduce of `bytes` takes at least among so many ranks, wherever they are, by the bandwidths alone: for bounds.
    /// O(ranks).
    #[must_use]
    pub fn least_all_reduce(&self, ranks: usize, bytes: u64) -> Duration {
        if ranks <= 1 {
            return Duration::ZERO;
        }
        let ring = |members: usize, bytes_per_s: f64| {
            let members = members as f64;
            2.0 * (members - 1.0) / members * bytes as f64 / bytes_per_s
        };
        let host = &self.levels[0];
        // Levels beyond the first network are free here.
        let on_hosts = |hosts: usize| {
            let inside = ring(ranks.div_ceil(hosts), host.bandwidth_bytes_per_s);
            let between = self.levels.get(1).map_or(0.0, |network| {
                let adapters = network.adapters.min(ranks / hosts);
                ring(hosts, network.bandwidth_bytes_per_s * adapters as f64)
            });
            // A ring through all ranks moves at least as much on each level.
            if self.pipelined { inside.max(between) } else { inside + between }
        };
        let fewest = self.ranks_per_host().map_or(1, |most| ranks.div_ceil(most));
        let most = if self.levels.len() > 1 { ranks } else { 1 };
        let seconds = (fewest..=most).map(on_hosts).fold(f64::INFINITY, f64::min);
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    /// How many ranks a unit of each level connects. Costs take the outermost one to connect all that there are:
    /// [`check_ranks`](Self::check_ranks) says whether it does.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> {
        let inner = self.levels[..self.levels.len() - 1].iter();
        inner.map(|level| level.ranks.unwrap_or(usize::MAX)).chain([usize::MAX])
    }

    /// Of ranks `0..ranks`.
    pub(super) fn spread_of_first(&self, ranks: usize) -> Spread {
        let mut spread = Spread::of(ranks, self.levels.len());
        let (mut member, mut inside) = (1, 1);
        for (level, unit) in self.levels.iter().zip(self.units()) {
            let members = ranks.min(unit).div_ceil(member);
            // The last member may have fewer ranks, and members of its own, than the others.
            let fewest = match ranks % member {
                0 => member.min(ranks),
                rest => rest,
            };
            spread.push(level, members, fewest, fewest.div_ceil(inside), member.min(ranks));
            (inside, member) = (member, unit);
        }
        spread
    }

    fn spread(&self, ranks: &[usize]) -> Spread {
        let ascending = ranks.is_sorted_by(|a, b| a < b);
        if ascending && ranks.first() == Some(&0) && ranks.last() == Some(&(ranks.len() - 1)) {
            return self.spread_of_first(ranks.len());
        }
        let mut sorted;
        let ranks = if ascending {
            ranks
        } else {
            sorted = ranks.to_vec();
            sorted.sort_unstable();
            &sorted
        };
        let mut spread = Spread::of(ranks.len(), self.levels.len());
        let (mut size, mut inside) = (1, 1);
        for (level, unit_size) in self.levels.iter().zip(self.units()) {
            let (mut most_members, mut most_ranks) = (0, 0);
            let (mut fewest_ranks, mut fewest_inside) = (usize::MAX, usize::MAX);
            for unit in ranks.chunk_by(|a, b| a / unit_size == b / unit_size) {
                let mut members = 0;
                for member in unit.chunk_by(|a, b| a / size == b / size) {
                    members += 1;
                    (fewest_ranks, most_ranks) =
                        (fewest_ranks.min(member.len()), most_ranks.max(member.len()));
                    let inside = member.chunk_by(|a, b| a / inside == b / inside).count();
                    fewest_inside = fewest_inside.min(inside);
                }
                most_members = most_members.max(members);
            }
            spread.push(level, most_members, fewest_ranks, fewest_inside, most_ranks);
            (inside, size) = (size, unit_size);
        }
        spread
    }

    pub(super) fn cost_of(&self, collective: CollectiveKind, spread: &Spread, bytes: u64) -> Duration {
        self.total(collective, spread, bytes, |index, level, among| {
            // Each rank regroups all of its bytes by host, and then a host's ranks send all of theirs.
            let members =
                if collective == CollectiveKind::AllToAll { spread.ranks_per_member[index] } else { 1 };
            level.steps(collective, among, bytes.saturating_mul(members as u64))
        })
    }

    pub(super) fn all_reduce_of(&self, algorithm: Algorithm, spread: &Spread, bytes: u64) -> Duration {
        self.total(CollectiveKind::AllReduce, spread, bytes, |_, level, among| {
            (among.members > 1).then(|| level.all_reduce_steps(algorithm, among, bytes as f64))
        })
    }

    /// The time of an operation's steps on all levels.
    fn total(
        &self,
        collective: CollectiveKind,
        spread: &Spread,
        bytes: u64,
        steps: impl Fn(usize, &Level, Among) -> Option<Steps>,
    ) -> Duration {
        let is_used = |among: &Among| among.members > 1;
        let outermost = spread.by_level.iter().rposition(is_used);
        let through_all = collective.bus_factor(spread.ranks).filter(|_| {
            let several = spread.by_level.iter().filter(|&among| is_used(among)).count() > 1;
            self.pipelined && several && collective != CollectiveKind::AllToAll
        });
        let (mut total, mut slowest) = (Duration::ZERO, Duration::ZERO);
        for (index, (level, &among)) in self.levels.iter().zip(&spread.by_level).enumerate() {
            let Some(steps) = steps(index, level, among) else { continue };
            let (begin, transfer) = level.parts(steps, among.bandwidth_bytes_per_s);
            total = total.saturating_add(begin);
            if let Some(part) = through_all {
                let steps = Steps { count: 0.0, bytes: part * bytes as f64 };
                slowest = slowest.max(level.parts(steps, among.bandwidth_bytes_per_s).1);
                continue;
            }
            // The two halves of an all-reduce inside a host are an operation each, before and after the one between hosts.
            let again = match collective {
                CollectiveKind::AllReduce if Some(index) != outermost => level.startup,
                CollectiveKind::Barrier if Some(index) != outermost => begin,
                _ => Duration::ZERO,
            };
            total = total.saturating_add(transfer).saturating_add(again);
        }
        total.saturating_add(slowest)
    }
}

impl Spread {
    fn of(ranks: usize, levels: usize) -> Self {
        let (by_level, ranks_per_member) = (Vec::with_capacity(levels), Vec::with_capacity(levels));
        Self { ranks, by_level, ranks_per_member }
    }

    /// Adds the level outside of the last one: the most members of a unit, the fewest ranks of a member, the fewest members of the last
    /// level that a member of this one has, and the most ranks of a member.
    fn push(&mut self, level: &Level, members: usize, fewest: usize, fewest_inside: usize, most: usize) {
        let adapters = level.adapters.min(fewest) as f64;
        // What leaves a member has to come out of the links inside of it.
        let inside = self
            .by_level
            .last()
            .map_or(f64::INFINITY, |inside| inside.bandwidth_bytes_per_s * fewest_inside as f64);
        let bandwidth_bytes_per_s = (level.bandwidth_bytes_per_s * adapters).min(inside);
        self.by_level.push(Among { members, bandwidth_bytes_per_s });
        self.ranks_per_member.push(most);
    }
}

//! Several levels of links: within hosts, between the hosts, and so on.

use std::time::Duration;

use super::level::Among;
use super::{Algorithm, Collective, Level, LinkModel};
use crate::{Error, Result};

/// Where the ranks of a group are, by level from the inside: nothing else of them matters to what an operation takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Spread {
    /// The most members of a level that any unit of it has in the group; and the adapters that every one of them can use: as many as
    /// its ranks in the group.
    by_level: Vec<Among>,
    /// The most ranks of the group in any member of a level.
    ranks_per_member: Vec<usize>,
}

impl LinkModel {
    /// These links within each host of `ranks_per_host` ranks, and `network` between the hosts.
    ///
    /// Ranks 0, 1, ... fill one host after another. Bandwidth, startup and latency of the network are a host's, which its ranks
    /// share; a network [with several adapters](Self::with_adapters) a host gives one rank one of them. Operations go inside each
    /// host, then between hosts (each rank with its part of the bytes), then inside again; each of these is paid in full. An
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
        self.error = self.error.into_iter().chain(network.error).reduce(f64::max);
        self
    }

    /// Ranks of a member of the outermost level.
    pub(super) fn ranks_inside(&self) -> usize {
        let inside = self.levels.len().checked_sub(2).and_then(|level| self.levels[level].ranks);
        inside.unwrap_or(1)
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
    pub fn cost_among(&self, collective: Collective, ranks: &[usize], bytes: u64) -> Duration {
        match collective {
            Collective::Send => self.levels[0].cost(collective, Among { members: 2, adapters: 1 }, bytes),
            _ if ranks.len() <= 1 => Duration::ZERO,
            _ => self.cost_of(collective, &self.spread(ranks), bytes),
        }
    }

    /// An all-reduce of `bytes` on each of these ranks, wherever they are.
    #[must_use]
    pub fn all_reduce_among(&self, ranks: &[usize], bytes: u64) -> Duration {
        self.cost_among(Collective::AllReduce, ranks, bytes)
    }

    /// How many ranks a unit of each level connects. Costs take the outermost one to connect all that there are:
    /// [`check_ranks`](Self::check_ranks) says whether it does.
    pub(super) fn units(&self) -> impl Iterator<Item = usize> {
        let inner = self.levels[..self.levels.len() - 1].iter();
        inner.map(|level| level.ranks.unwrap_or(usize::MAX)).chain([usize::MAX])
    }

    /// Of ranks `0..ranks`.
    pub(super) fn spread_of_first(&self, ranks: usize) -> Spread {
        let mut by_level = Vec::with_capacity(self.levels.len());
        let mut ranks_per_member = Vec::with_capacity(self.levels.len());
        let mut member = 1;
        for (level, unit) in self.levels.iter().zip(self.units()) {
            let members = ranks.min(unit).div_ceil(member);
            // The last member may have fewer ranks than the others.
            let fewest = match ranks % member {
                0 => member,
                rest => rest,
            };
            by_level.push(Among { members, adapters: level.adapters.min(fewest) });
            ranks_per_member.push(member.min(ranks));
            member = unit;
        }
        Spread { by_level, ranks_per_member }
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
        let (mut by_level, mut ranks_per_member) = (Vec::new(), Vec::new());
        let mut size = 1;
        for (level, unit_size) in self.levels.iter().zip(self.units()) {
            let (mut most_members, mut fewest, mut most) = (0, usize::MAX, 0);
            for unit in ranks.chunk_by(|a, b| a / unit_size == b / unit_size) {
                let mut members = 0;
                for member in unit.chunk_by(|a, b| a / size == b / size) {
                    members += 1;
                    (fewest, most) = (fewest.min(member.len()), most.max(member.len()));
                }
                most_members = most_members.max(members);
            }
            by_level.push(Among { members: most_members, adapters: level.adapters.min(fewest) });
            ranks_per_member.push(most);
            size = unit_size;
        }
        Spread { by_level, ranks_per_member }
    }

    pub(super) fn cost_of(&self, collective: Collective, spread: &Spread, bytes: u64) -> Duration {
        let outermost = spread.outermost();
        let mut total = Duration::ZERO;
        for (index, (level, &among)) in self.levels.iter().zip(&spread.by_level).enumerate() {
            if among.members <= 1 {
                continue;
            }
            let bytes = match collective {
                // Each rank regroups all of its bytes by host, and then a host's ranks send all of theirs.
                Collective::AllToAll => bytes.saturating_mul(spread.ranks_per_member[index] as u64),
                _ => bytes,
            };
            let took = level.cost(collective, among, bytes);
            total = total.saturating_add(took);
            if Some(index) != outermost {
                total = total.saturating_add(match collective {
                    // The two halves of it inside a host are an operation each, before and after the one between hosts.
                    Collective::AllReduce => level.startup,
                    Collective::Barrier => took,
                    _ => Duration::ZERO,
                });
            }
        }
        total
    }

    pub(super) fn all_reduce_of(&self, algorithm: Algorithm, spread: &Spread, bytes: u64) -> Duration {
        let outermost = spread.outermost();
        let levels = self.levels.iter().zip(&spread.by_level).enumerate();
        let used = levels.filter(|(_, (_, among))| among.members > 1);
        used.fold(Duration::ZERO, |total, (index, (level, &among))| {
            let second_half = if Some(index) == outermost { Duration::ZERO } else { level.startup };
            let took = level.all_reduce_by(algorithm, among, bytes);
            total.saturating_add(took).saturating_add(second_half)
        })
    }
}

impl Spread {
    /// The outermost level that the group uses.
    fn outermost(&self) -> Option<usize> {
        self.by_level.iter().rposition(|among| among.members > 1)
    }
}

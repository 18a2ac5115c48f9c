//! The links of a cluster, and the use of them by operations. A *level* of links connects
//! *members*: the first level the ranks of a host, the second the hosts of a cluster or rack, the
//! third racks.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use super::{Flow, FlowNetwork};
use crate::link_model::LevelLinks;
use crate::{CollectiveKind, LinkModel, Redistribution, Result};

/// The links of a cluster: one in each direction for each member of each level of a [`LinkModel`].
///
/// The links of a rank are those to the other ranks of its host. The links of a host are all its
/// adapters together, in one direction. Those of a rack are its links to other racks. A level with
/// fewer adapters than its members have inside is oversubscribed: a rack of 8 hosts with 8 adapters
/// each and 16 adapters to the other racks is oversubscribed by 4.
///
/// Bytes that leave a rack also pass the links of its hosts. Bytes that leave a host do not pass
/// the links between its ranks.
///
/// ```
/// use std::time::Duration;
/// use collectives::{ClusterLinks, CollectiveKind, LinkModel};
///
/// let pod = LinkModel::named("a100-100gbe")?;
/// let links = ClusterLinks::new(&pod, 32)?;
/// let mut network = links.network()?;
/// // Two jobs of 16 ranks on the same four hosts, which have one adapter each.
/// let (mut time, bytes) = (Duration::ZERO, 1 << 28);
/// for job in 0..2 {
///     let ranks: Vec<usize> = (0..32).filter(|rank| rank % 8 / 4 == job).collect();
///     let flow = links.collective(CollectiveKind::AllReduce, &ranks, 1, bytes)?;
///     time = flow.alone();
///     network.start(Duration::ZERO, flow.with_owner(job))?;
/// }
/// let ratio = network.next_end().unwrap().as_secs_f64() / time.as_secs_f64();
/// assert!((1.9..2.0).contains(&ratio), "{ratio}");
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ClusterLinks {
    link: LinkModel,
    ranks: usize,
    levels: Vec<LevelLinks>,
    /// Index of the first link of each level, and the number of all links.
    first: Vec<usize>,
}

/// A link of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterLink {
    /// Level of the link, from 0.
    pub level: usize,
    /// Number of the member of this level: a rank on level 0, a host on level 1.
    pub member: usize,
    /// Direction of the bytes.
    pub direction: Direction,
}

/// Direction of a link of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Direction {
    /// From the member.
    Sent,
    /// To the member.
    Received,
}

impl fmt::Display for ClusterLink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = match self.direction {
            Direction::Sent => "sent",
            Direction::Received => "received",
        };
        match self.level {
            0 => write!(f, "GPU {}, {direction}", self.member),
            1 => write!(f, "host {}, {direction}", self.member),
            2 => write!(f, "rack {}, {direction}", self.member),
            level => write!(f, "level {level}, member {}, {direction}", self.member),
        }
    }
}

/// Bytes of an operation over the links of a cluster.
#[derive(Default)]
struct Loads {
    /// By index of the link: the bytes, and the ranks that send or receive them, maybe repeatedly.
    by_link: BTreeMap<usize, (f64, Vec<usize>)>,
    /// Outermost level that the operation uses.
    outermost: usize,
}

impl ClusterLinks {
    /// Creates the links of a cluster of ranks `0..ranks`.
    ///
    /// # Errors
    /// [`Error::TooManyRanks`](crate::Error::TooManyRanks) if the link model connects fewer ranks.
    pub fn new(link: &LinkModel, ranks: usize) -> Result<Self> {
        link.check_ranks(ranks)?;
        let levels = link.level_links();
        let mut first = vec![0];
        for level in &levels {
            first.push(first[first.len() - 1] + 2 * ranks.div_ceil(level.member_ranks));
        }
        Ok(Self { link: link.clone(), ranks, levels, first })
    }

    /// The link model, by which operations take their time alone.
    #[must_use]
    pub fn link_model(&self) -> &LinkModel {
        &self.link
    }

    /// Number of ranks of the cluster.
    #[must_use]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Number of levels of links.
    #[must_use]
    pub fn levels(&self) -> usize {
        self.levels.len()
    }

    /// Number of links.
    #[must_use]
    pub fn count(&self) -> usize {
        self.first.last().copied().unwrap_or(0)
    }

    /// Returns the indices of the links of a level; empty for a level that does not exist.
    #[must_use]
    pub fn of_level(&self, level: usize) -> std::ops::Range<usize> {
        match self.first.get(level..level.saturating_add(2)) {
            Some([begin, end]) => *begin..*end,
            _ => 0..0,
        }
    }

    /// Returns the link with an index. `None` if it does not exist.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<ClusterLink> {
        let level = (0..self.levels()).find(|&level| self.of_level(level).contains(&index))?;
        let place = index - self.first[level];
        let direction = if place % 2 == 0 { Direction::Sent } else { Direction::Received };
        Some(ClusterLink { level, member: place / 2, direction })
    }

    /// Returns the capacity of each link of a level, in bytes per second. `None` for a level that
    /// does not exist.
    #[must_use]
    pub fn capacity(&self, level: usize) -> Option<f64> {
        self.levels.get(level).map(|level| level.bytes_per_s * level.adapters as f64)
    }

    /// Creates a network of these links without flows.
    ///
    /// # Errors
    /// None for the bandwidths of a valid link model.
    pub fn network(&self) -> Result<FlowNetwork> {
        let capacities = (0..self.levels()).flat_map(|level| {
            let capacity = self.capacity(level).unwrap_or_default();
            self.of_level(level).map(move |_| capacity)
        });
        FlowNetwork::new(&capacities.collect::<Vec<_>>())
    }

    /// Returns the flow of an operation that each of several groups of ranks performs on its own,
    /// all at the same time, as in [`LinkModel::cost_in_groups`], whose time it takes alone.
    ///
    /// Each member of a level sends and receives the bytes of the algorithm that the link model
    /// has chosen. The bytes of an outer level are divided evenly over the inner members of each
    /// member. The flow's connections are the adapters that its ranks use on the outermost level.
    ///
    /// # Errors
    /// [`Error::BadFlow`](crate::Error::BadFlow) if numbers of bytes exceed the range of `f64`.
    pub fn collective(
        &self,
        kind: CollectiveKind,
        ranks: &[usize],
        groups: usize,
        bytes: u64,
    ) -> Result<Flow> {
        let mut loads = Loads::default();
        for group in ranks.chunks(ranks.len().div_ceil(groups.max(1)).max(1)) {
            match (kind, group) {
                (CollectiveKind::Send, &[from, to, ..]) => self.add_move(&mut loads, from, to, bytes as f64),
                (CollectiveKind::Send, _) => {}
                _ => self.add_group(&mut loads, group, &self.link.bytes_by_level(kind, group, bytes)),
            }
        }
        self.flow(&loads, self.link.cost_in_groups(kind, ranks, groups, bytes))
    }

    /// Returns the flow of a redistribution of items of `item_bytes` bytes whose rank `i` is rank
    /// `placement[i]` of the cluster. A rank without a place keeps its number. Alone, it takes the
    /// time of [`LinkModel::redistribution`].
    ///
    /// # Errors
    /// [`Error::BadFlow`](crate::Error::BadFlow) if numbers of bytes exceed the range of `f64`.
    pub fn redistribution(
        &self,
        redistribution: &Redistribution,
        placement: &[usize],
        item_bytes: u64,
    ) -> Result<Flow> {
        let place = |rank: usize| placement.get(rank).copied().unwrap_or(rank);
        let mut loads = Loads::default();
        for m in redistribution.moves() {
            let bytes = m.items() as f64 * item_bytes as f64;
            self.add_move(&mut loads, place(m.from_rank), place(m.to_rank), bytes);
        }
        let traffic = self.link.placed_traffic(redistribution, placement);
        self.flow(&loads, self.link.traffic_time(&traffic, item_bytes))
    }

    /// Returns the index of a link of the member of a level that a rank belongs to.
    fn index(&self, level: usize, rank: usize, direction: Direction) -> usize {
        self.first[level] + 2 * (rank / self.levels[level].member_ranks) + direction as usize
    }

    /// Adds a message to the loads.
    fn add_move(&self, loads: &mut Loads, from: usize, to: usize, bytes: f64) {
        let differ = |level: &LevelLinks| from / level.member_ranks != to / level.member_ranks;
        let Some(outermost) = self.levels.iter().rposition(differ) else { return };
        // A message between hosts does not use the links inside of them.
        for level in outermost.min(1)..=outermost {
            loads.add(self.index(level, from, Direction::Sent), bytes, &[from]);
            loads.add(self.index(level, to, Direction::Received), bytes, &[to]);
        }
        loads.outermost = loads.outermost.max(outermost);
    }

    /// Adds a collective of a group to the loads. `sent` are the bytes of a member of each level.
    fn add_group(&self, loads: &mut Loads, group: &[usize], sent: &[f64]) {
        let mut ranks = group.to_vec();
        ranks.sort_unstable();
        // From the outermost level: the bytes that a member of the level sends, and its ranks.
        let mut pending: Vec<(usize, f64, &[usize])> = vec![(self.levels.len(), 0.0, &ranks)];
        while let Some((outside, passing, ranks)) = pending.pop() {
            let Some(level) = outside.checked_sub(1) else { continue };
            let member = self.levels[level].member_ranks;
            let members = || ranks.chunk_by(|a, b| a / member == b / member);
            let count = members().count();
            let own = if count > 1 { sent[level] } else { 0.0 };
            // The links inside a host do not carry what leaves it.
            let passing = if level == 0 { 0.0 } else { passing / count as f64 };
            let bytes = if self.link.is_pipelined() { own.max(passing) } else { own + passing };
            if own > 0.0 {
                loads.outermost = loads.outermost.max(level);
            }
            for of_member in members() {
                if bytes > 0.0 {
                    for direction in [Direction::Sent, Direction::Received] {
                        loads.add(self.index(level, of_member[0], direction), bytes, of_member);
                    }
                }
                pending.push((level, bytes, of_member));
            }
        }
    }

    /// Returns the flow with these loads that takes the duration `alone`.
    fn flow(&self, loads: &Loads, alone: Duration) -> Result<Flow> {
        // The busiest of the connections on the outermost level.
        let (level, links) = (&self.levels[loads.outermost], self.of_level(loads.outermost));
        let of_connection = loads.by_link.range(links).map(|(_, (bytes, ranks))| {
            let mut ranks = ranks.clone();
            ranks.sort_unstable();
            ranks.dedup();
            bytes / level.adapters.min(ranks.len()).max(1) as f64
        });
        let volume = of_connection.fold(0.0, f64::max);
        let bytes: Vec<(usize, f64)> =
            loads.by_link.iter().map(|(&link, (bytes, _))| (link, *bytes)).collect();
        Flow::new(alone, volume, &bytes)
    }
}

impl Loads {
    fn add(&mut self, link: usize, bytes: f64, ranks: &[usize]) {
        let of_link = self.by_link.entry(link).or_default();
        of_link.0 += bytes;
        of_link.1.extend(ranks);
    }
}

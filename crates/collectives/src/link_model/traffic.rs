//! Cost model of redistributions. A *level* of links connects *members*: the first level the ranks
//! of a host, the second the hosts of a cluster or rack.

use std::time::Duration;

use super::LinkModel;
use crate::layout::even_shards;
use crate::moves::{each_move, even_moves};
use crate::{Layout, Redistribution, Result};

/// Load of a redistribution on each level of links, in items and messages. Computed by
/// [`LinkModel::traffic`] and converted into a time by [`LinkModel::traffic_time`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// Load of each level of links, from the innermost one.
    by_level: Vec<LevelTraffic>,
}

/// Load of a redistribution on one level of links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LevelTraffic {
    /// Maximum number of messages between members of a unit that any rank sends or receives. A rank
    /// handles them one after another.
    messages: usize,
    /// Maximum number of items that any rank sends or receives outside of its member, over one
    /// adapter.
    rank_items: usize,
    /// Maximum number of items that any member (a rank or a host) sends or receives, over all its
    /// adapters.
    member_items: usize,
}

impl LinkModel {
    /// Returns the time of a redistribution of items of `item_bytes` bytes.
    ///
    /// It is the transfer time of the busiest rank, which sends or receives one message after
    /// another, or of the busiest host over all its adapters, if that is longer. Messages within
    /// hosts and between hosts overlap. The time is zero if no item moves.
    ///
    /// If many ranks send to one, it receives all bytes over its own adapter and pays the latency
    /// once a message, as in a pairwise exchange.
    #[must_use]
    pub fn redistribution(&self, redistribution: &Redistribution, item_bytes: u64) -> Duration {
        self.traffic_time(&self.traffic(redistribution), item_bytes)
    }

    /// Returns the load of a redistribution on the links of this model. It does not depend on the
    /// size of an item, so it serves all layers that are redistributed in the same way. O(levels x
    /// moves + ranks x log ranks).
    #[must_use]
    pub fn traffic(&self, redistribution: &Redistribution) -> Traffic {
        let mut loads = Loads::new(self, [redistribution.ranks(), &[]]);
        for m in redistribution.moves() {
            loads.add(m.from_rank, m.to_rank, m.items());
        }
        loads.traffic()
    }

    /// Returns the [load](Self::traffic) of a redistribution whose rank `i` is rank `placement[i]`
    /// of this model. A rank without a place keeps its number.
    #[must_use]
    pub fn placed_traffic(&self, redistribution: &Redistribution, placement: &[usize]) -> Traffic {
        let place = |rank: usize| placement.get(rank).copied().unwrap_or(rank);
        let ranks: Vec<usize> = redistribution.ranks().iter().map(|&rank| place(rank)).collect();
        let mut loads = Loads::new(self, [&ranks, &[]]);
        for m in redistribution.moves() {
            loads.add(place(m.from_rank), place(m.to_rank), m.items());
        }
        loads.traffic()
    }

    /// Returns the [load](Self::traffic) of the redistribution between two layouts, without its
    /// moves in memory.
    ///
    /// # Errors
    /// As [`Redistribution::new`].
    pub fn traffic_between(&self, from: &Layout, to: &Layout) -> Result<Traffic> {
        let mut loads = Loads::new(self, [from.ranks(), to.ranks()]);
        each_move(from, to, |from_rank, to_rank, ranges| {
            let items = ranges.iter().fold(1_usize, |items, range| items.saturating_mul(range.len()));
            loads.add(from_rank, to_rank, items);
        })?;
        Ok(loads.traffic())
    }

    /// Returns the [load](Self::traffic) of a redistribution of `samples` samples that are divided
    /// [evenly](crate::Layout::even) over the ranks `from` before and over the ranks `to`
    /// afterwards. Neither list has a rank twice.
    #[must_use]
    pub fn even_traffic(&self, samples: usize, from: &[usize], to: &[usize]) -> Traffic {
        let mut loads = Loads::new(self, [from, to]);
        for (from_rank, to_rank, items) in even_moves(even_shards(samples, from), even_shards(samples, to)) {
            loads.add(from_rank, to_rank, items);
        }
        loads.traffic()
    }

    /// Returns the time of a redistribution with this [load](Self::traffic), which was computed by
    /// the same model, with items of `item_bytes` bytes.
    #[must_use]
    pub fn traffic_time(&self, traffic: &Traffic, item_bytes: u64) -> Duration {
        let mut longest = Duration::ZERO;
        for (level, traffic) in self.levels.iter().zip(&traffic.by_level) {
            let bytes = |items: usize| (items as u64).saturating_mul(item_bytes) as f64;
            let slowest = bytes(traffic.rank_items).max(bytes(traffic.member_items) / level.adapters as f64);
            if traffic.messages > 0 {
                longest = longest.max(level.messages(traffic.messages as f64, slowest));
            } else if slowest > 0.0 {
                // The items only pass through this level. The outer level pays the startup and
                // the latency.
                longest = longest.max(level.passing(slowest));
            }
        }
        longest
    }

    /// Returns a lower bound on the time in which one rank sends `bytes` bytes in `messages`
    /// messages (at least one), over all levels of links at the same time. It includes a startup
    /// and a latency, even for no bytes.
    #[must_use]
    pub fn send_lower_bound(&self, bytes: u64, messages: usize) -> Duration {
        if let [level] = &self.levels[..] {
            return level.messages(messages as f64, bytes as f64);
        }
        let begins = self.levels.iter().map(|level| level.messages(1.0, 0.0));
        let bytes_per_s: f64 = self.levels.iter().map(|level| level.bandwidth_bytes_per_s).sum();
        let transfer = Duration::from_nanos((bytes as f64 / bytes_per_s * 1e9).floor() as u64);
        begins.min().unwrap_or_default().saturating_add(transfer)
    }
}

/// Maximum ratio of the distance between the first and the last rank to the number of ranks for
/// which loads are kept by rank.
const MAX_SPREAD: usize = 16;

/// The loads of the ranks of a redistribution, as its moves are added.
struct Loads {
    /// By level of links: number of ranks of each of its members.
    members: Vec<usize>,
    ranks: IndexedRanks,
    /// By index of the rank and level of links but the last: the unit whose ranks the level
    /// connects.
    units: Vec<usize>,
    /// By index of the rank and level that connects it with the other rank.
    by_rank: Vec<RankLoad>,
}

/// Ranks with indices in ascending order.
enum IndexedRanks {
    /// All ranks from a first one on: their number.
    Range { first: usize, count: usize },
    /// Ranks that are far apart, ascending.
    List(Vec<usize>),
}

/// Messages that a rank sends to and receives from the ranks to which a level of links connects it.
#[derive(Clone, Default)]
struct RankLoad {
    sent: Load,
    received: Load,
}

/// Messages in one direction.
#[derive(Clone, Copy, Default)]
struct Load {
    messages: usize,
    items: usize,
}

impl Load {
    fn add(&mut self, items: usize) {
        self.messages += 1;
        self.items = self.items.saturating_add(items);
    }
}

impl IndexedRanks {
    /// Indexes the ranks of two lists, and maybe others between them.
    fn new(lists: [&[usize]; 2]) -> Self {
        let all = || lists.into_iter().flatten().copied();
        let count = lists[0].len() + lists[1].len();
        let (first, last) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
        if last - first < MAX_SPREAD.saturating_mul(count) {
            return Self::Range { first, count: last - first + 1 };
        }
        let mut ranks: Vec<usize> = all().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self::List(ranks)
    }

    fn count(&self) -> usize {
        match self {
            Self::Range { count, .. } => *count,
            Self::List(ranks) => ranks.len(),
        }
    }

    /// Returns the index of a rank of the lists.
    fn index(&self, rank: usize) -> usize {
        match self {
            Self::Range { first, .. } => rank - first,
            Self::List(ranks) => ranks.partition_point(|&other| other < rank),
        }
    }

    fn rank(&self, index: usize) -> usize {
        match self {
            Self::Range { first, .. } => first + index,
            Self::List(ranks) => ranks[index],
        }
    }
}

impl Loads {
    /// Creates the loads of the ranks of two lists.
    fn new(link: &LinkModel, lists: [&[usize]; 2]) -> Self {
        let members: Vec<usize> = [1].into_iter().chain(link.unit_sizes()).take(link.levels.len()).collect();
        let ranks = IndexedRanks::new(lists);
        let mut units = Vec::with_capacity(ranks.count() * (members.len() - 1));
        for rank in (0..ranks.count()).map(|index| ranks.rank(index)) {
            units.extend(members[1..].iter().map(|unit| rank / unit));
        }
        Self { by_rank: vec![RankLoad::default(); ranks.count() * members.len()], units, members, ranks }
    }

    /// Adds the move of items between two ranks. O(levels).
    fn add(&mut self, from: usize, to: usize, items: usize) {
        let levels = self.members.len();
        let [from, to] = [from, to].map(|rank| self.ranks.index(rank));
        let units = |index: usize| &self.units[index * (levels - 1)..][..levels - 1];
        let level = units(from).iter().zip(units(to)).take_while(|(from, to)| from != to).count();
        let [from, to] = [from, to].map(|index| index * levels + level);
        self.by_rank[from].sent.add(items);
        self.by_rank[to].received.add(items);
    }

    /// Returns the load of each level. O(levels x ranks).
    fn traffic(&self) -> Traffic {
        let levels = self.members.len();
        let mut by_level = vec![LevelTraffic::default(); levels];
        // By level: the first rank after the member of the last rank, and the items that leave the
        // member and that enter it.
        let mut of_member = vec![(0, [0; 2]); levels];
        for (index, of_rank) in self.by_rank.chunks_exact(levels).enumerate() {
            let rank = self.ranks.rank(index);
            // Items that leave a rack also pass the port of their host. They do not pass the links
            // inside it.
            let mut passing = [0; 2];
            for (level, RankLoad { sent, received }) in of_rank.iter().enumerate().rev() {
                let (end, member_items) = &mut of_member[level];
                if rank >= *end {
                    let member = self.members[level];
                    (*end, *member_items) =
                        ((rank / member).saturating_add(1).saturating_mul(member), [0; 2]);
                }
                for (direction, load) in [sent, received].into_iter().enumerate() {
                    let outer = if level == 0 { 0 } else { passing[direction] };
                    passing[direction] = load.items.saturating_add(outer);
                    member_items[direction] =
                        usize::saturating_add(member_items[direction], passing[direction]);
                    by_level[level].add(load.messages, passing[direction], member_items[direction]);
                }
            }
        }
        Traffic { by_level }
    }
}

impl LevelTraffic {
    /// Raises the maxima to a number of messages and of items of a rank, and of items of a member.
    fn add(&mut self, messages: usize, rank_items: usize, member_items: usize) {
        self.messages = self.messages.max(messages);
        self.rank_items = self.rank_items.max(rank_items);
        self.member_items = self.member_items.max(member_items);
    }
}

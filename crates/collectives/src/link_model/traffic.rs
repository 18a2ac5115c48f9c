//! Cost model of redistributions. A *level* of links connects *members*: the first level the ranks
//! of a host, the second the hosts of a cluster or rack.

use std::time::Duration;

use rustc_hash::FxHashMap;

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
        let mut loads = Loads::new(self);
        for m in redistribution.moves() {
            loads.add(m.from_rank, m.to_rank, m.items());
        }
        loads.traffic()
    }

    /// Returns the [load](Self::traffic) of the redistribution between two layouts, without its
    /// moves in memory.
    ///
    /// # Errors
    /// As [`Redistribution::new`].
    pub fn traffic_between(&self, from: &Layout, to: &Layout) -> Result<Traffic> {
        let mut loads = Loads::new(self);
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
        let mut loads = Loads::new(self);
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

/// The loads of the ranks of a redistribution, as its moves are added.
struct Loads {
    /// By level of links: number of ranks of each of its members.
    members: Vec<usize>,
    /// By rank: its index among those that send or receive.
    indices: FxHashMap<usize, usize>,
    /// By index of the rank and level that connects it with the other rank.
    by_rank: Vec<RankLoad>,
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

/// The messages that a rank sends, and those that it receives.
const DIRECTIONS: [fn(&RankLoad) -> Load; 2] = [|of_rank| of_rank.sent, |of_rank| of_rank.received];

impl Load {
    fn add(&mut self, items: usize) {
        self.messages += 1;
        self.items = self.items.saturating_add(items);
    }
}

impl Loads {
    fn new(link: &LinkModel) -> Self {
        let members = [1].into_iter().chain(link.unit_sizes()).take(link.levels.len()).collect();
        Self { members, indices: FxHashMap::default(), by_rank: Vec::new() }
    }

    /// Adds the move of items between two ranks. O(levels).
    fn add(&mut self, from: usize, to: usize, items: usize) {
        let levels = self.members.len();
        let connecting = self.members[1..].iter().position(|unit| from / unit == to / unit);
        let level = connecting.unwrap_or(levels - 1);
        let [from, to] = [from, to].map(|rank| {
            let next = self.indices.len();
            *self.indices.entry(rank).or_insert(next) * levels + level
        });
        self.by_rank.resize(self.indices.len() * levels, RankLoad::default());
        self.by_rank[from].sent.add(items);
        self.by_rank[to].received.add(items);
    }

    /// Returns the load of each level. O(levels^2 x ranks + ranks x log ranks).
    fn traffic(&self) -> Traffic {
        let mut ranks: Vec<(usize, usize)> =
            self.indices.iter().map(|(&rank, &index)| (rank, index)).collect();
        ranks.sort_unstable();
        let levels = self.members.len();
        let of_level = |(level, &member): (usize, &usize)| {
            let mut traffic = LevelTraffic::default();
            for of_member in ranks.chunk_by(|(a, _), (b, _)| a / member == b / member) {
                for load in DIRECTIONS {
                    traffic.add(of_member.iter().map(|&(_, index)| {
                        let of_rank = &self.by_rank[index * levels..][..levels];
                        // Items that leave a rack also pass the port of their host. They do not
                        // pass the links inside it.
                        let passing = if level == 0 { &of_rank[..1] } else { &of_rank[level..] };
                        let items = passing.iter().map(load).map(|load| load.items);
                        Load {
                            messages: load(&of_rank[level]).messages,
                            items: items.fold(0, usize::saturating_add),
                        }
                    }));
                }
            }
            traffic
        };
        Traffic { by_level: self.members.iter().enumerate().map(of_level).collect() }
    }
}

impl LevelTraffic {
    /// Raises the maxima to the loads of the ranks of a member, in one direction.
    fn add(&mut self, loads: impl Iterator<Item = Load>) {
        let mut member_items = 0_usize;
        for Load { messages, items } in loads {
            member_items = member_items.saturating_add(items);
            self.messages = self.messages.max(messages);
            self.rank_items = self.rank_items.max(items);
        }
        self.member_items = self.member_items.max(member_items);
    }
}

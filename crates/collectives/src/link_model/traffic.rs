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
    /// moves + moves x log moves).
    #[must_use]
    pub fn traffic(&self, redistribution: &Redistribution) -> Traffic {
        let moves = redistribution.moves().iter();
        self.traffic_of(moves.map(|m| (m.from_rank, m.to_rank, m.items())))
    }

    /// Returns the [load](Self::traffic) of the redistribution between two layouts, without its
    /// moves in memory.
    ///
    /// # Errors
    /// As [`Redistribution::new`].
    pub fn traffic_between(&self, from: &Layout, to: &Layout) -> Result<Traffic> {
        let mut moves = Vec::new();
        each_move(from, to, |from_rank, to_rank, ranges| {
            let items = ranges.iter().fold(1_usize, |items, range| items.saturating_mul(range.len()));
            moves.push((from_rank, to_rank, items));
        })?;
        Ok(self.traffic_of(moves.into_iter()))
    }

    /// Returns the [load](Self::traffic) of a redistribution of `samples` samples that are divided
    /// [evenly](crate::Layout::even) over the ranks `from` before and over the ranks `to`
    /// afterwards. Neither list has a rank twice.
    #[must_use]
    pub fn even_traffic(&self, samples: usize, from: &[usize], to: &[usize]) -> Traffic {
        self.traffic_of(even_moves(even_shards(samples, from), even_shards(samples, to)))
    }

    /// Returns the load of moves, each with its two ranks and its number of items.
    fn traffic_of(&self, moves: impl Iterator<Item = (usize, usize, usize)>) -> Traffic {
        let members: Vec<usize> = [1].into_iter().chain(self.unit_sizes()).take(self.levels.len()).collect();
        let level = |from: usize, to: usize| {
            members[1..].iter().position(|unit| from / unit == to / unit).unwrap_or(members.len() - 1)
        };
        let mut moves: Vec<RankMove> = moves
            .map(|(rank, other, items)| RankMove { rank, other, items, level: level(rank, other) })
            .collect();
        let mut by_level = vec![LevelTraffic::default(); self.levels.len()];
        for _end in ["source", "target"] {
            moves.sort_unstable_by_key(|m| m.rank);
            for (level, (traffic, &member)) in by_level.iter_mut().zip(&members).enumerate() {
                traffic.add(level, member, &moves);
            }
            for m in &mut moves {
                std::mem::swap(&mut m.rank, &mut m.other);
            }
        }
        Traffic { by_level }
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

/// Items that move between two ranks.
struct RankMove {
    /// Rank at the end whose load is computed.
    rank: usize,
    /// Rank at the other end.
    other: usize,
    items: usize,
    /// Index of the level of links that connects the two ranks.
    level: usize,
}

impl LevelTraffic {
    /// Raises the maxima to the loads of the ranks of `moves`, which are sorted by rank. `level` is
    /// the index of this level, and `member` the number of ranks of its members.
    fn add(&mut self, level: usize, member: usize, moves: &[RankMove]) {
        // Items that leave a rack also pass the port of their host. They do not pass the links
        // inside it.
        let is_passing = |m: &RankMove| m.level == level || (level > 0 && m.level > level);
        let (mut next_member, mut member_items) = (0, 0_usize);
        for of_rank in moves.chunk_by(|a, b| a.rank == b.rank) {
            if of_rank[0].rank >= next_member {
                next_member = (of_rank[0].rank / member + 1).saturating_mul(member);
                member_items = 0;
            }
            let (mut messages, mut rank_items) = (0, 0_usize);
            for m in of_rank.iter().filter(|m| is_passing(m)) {
                messages += usize::from(m.level == level);
                rank_items = rank_items.saturating_add(m.items);
            }
            member_items = member_items.saturating_add(rank_items);
            self.messages = self.messages.max(messages);
            self.rank_items = self.rank_items.max(rank_items);
            self.member_items = self.member_items.max(member_items);
        }
    }
}

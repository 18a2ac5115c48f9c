//! Cost model of redistributions. A *level* of links connects *members*: the first level the ranks
//! of a host, the second the hosts of a cluster or rack.

use std::time::Duration;

use super::LinkModel;
use crate::Redistribution;

/// Load of a redistribution on each level of links, in samples and messages. Computed by
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
    /// Maximum number of samples that any rank sends or receives outside of its member, over one
    /// adapter.
    rank_samples: usize,
    /// Maximum number of samples that any member (a rank or a host) sends or receives, over all its
    /// adapters.
    member_samples: usize,
}

impl LinkModel {
    /// Returns the time of a redistribution of samples of `sample_bytes` bytes.
    ///
    /// It is the transfer time of the busiest rank, which sends or receives one message after
    /// another, or of the busiest host over all its adapters, if that is longer. Messages within
    /// hosts and between hosts overlap. The time is zero if no sample moves.
    ///
    /// If many ranks send to one, it receives all bytes over its own adapter and pays the latency
    /// once a message, as in a pairwise exchange.
    #[must_use]
    pub fn redistribution(&self, redistribution: &Redistribution, sample_bytes: u64) -> Duration {
        self.traffic_time(&self.traffic(redistribution), sample_bytes)
    }

    /// Returns the load of a redistribution on the links of this model. It does not depend on the
    /// size of a sample, so it serves all layers that are redistributed in the same way. O(levels x
    /// moves x log moves).
    #[must_use]
    pub fn traffic(&self, redistribution: &Redistribution) -> Traffic {
        let mut moves: Vec<RankMove> = redistribution
            .moves()
            .iter()
            .map(|m| RankMove { from: m.from_rank, to: m.to_rank, samples: m.samples.len() })
            .collect();
        let mut by_level = Vec::with_capacity(self.levels.len());
        let mut member = 1;
        for (level, unit) in self.unit_sizes().enumerate() {
            let (here, beyond): (Vec<RankMove>, Vec<RankMove>) =
                moves.iter().partition(|m| m.from / unit == m.to / unit);
            // Samples that leave a rack also pass the port of their host. They do not pass the
            // links inside it.
            let passing = if level == 0 { &here } else { &moves };
            by_level
                .push(LevelTraffic { messages: max_messages(&here), ..LevelTraffic::of(passing, member) });
            (moves, member) = (beyond, unit);
        }
        Traffic { by_level }
    }

    /// Returns the time of a redistribution with this [load](Self::traffic), which was computed by
    /// the same model, with samples of `sample_bytes` bytes.
    #[must_use]
    pub fn traffic_time(&self, traffic: &Traffic, sample_bytes: u64) -> Duration {
        let mut longest = Duration::ZERO;
        for (level, traffic) in self.levels.iter().zip(&traffic.by_level) {
            let bytes = |samples: usize| (samples as u64).saturating_mul(sample_bytes) as f64;
            let slowest =
                bytes(traffic.rank_samples).max(bytes(traffic.member_samples) / level.adapters as f64);
            let steps = super::Steps { count: traffic.messages as f64, bytes: slowest };
            if traffic.messages > 0 {
                longest = longest.max(level.time(steps));
            } else if slowest > 0.0 {
                // The samples only pass through this level. The outer level pays the startup and
                // the latency.
                longest = longest.max(level.time_parts(steps, level.bandwidth_bytes_per_s).1);
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
            return level.time(super::Steps { count: messages as f64, bytes: bytes as f64 });
        }
        let begins = self.levels.iter().map(|level| level.startup.saturating_add(level.latency));
        let bytes_per_s: f64 = self.levels.iter().map(|level| level.bandwidth_bytes_per_s).sum();
        let transfer = Duration::from_nanos((bytes as f64 / bytes_per_s * 1e9).floor() as u64);
        begins.min().unwrap_or_default().saturating_add(transfer)
    }
}

#[derive(Clone, Copy)]
struct RankMove {
    from: usize,
    to: usize,
    samples: usize,
}

/// Maximum number of messages that any rank sends or receives.
fn max_messages(moves: &[RankMove]) -> usize {
    let max = |end: fn(&RankMove) -> usize| {
        let mut ends: Vec<usize> = moves.iter().map(end).collect();
        ends.sort_unstable();
        ends.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap_or(0)
    };
    max(|m| m.from).max(max(|m| m.to))
}

impl LevelTraffic {
    /// Returns the maximum loads of messages that leave members of `member` ranks.
    fn of(moves: &[RankMove], member: usize) -> Self {
        let mut ends: Vec<(usize, usize)> = Vec::with_capacity(moves.len());
        let mut busiest = Self::default();
        for end in [|m: &RankMove| m.from, |m: &RankMove| m.to] {
            ends.clear();
            ends.extend(moves.iter().map(|m| (end(m), m.samples)));
            ends.sort_unstable_by_key(|&(rank, _)| rank);
            let samples = |ends: &[(usize, usize)]| ends.iter().map(|&(_, samples)| samples).sum::<usize>();
            for rank_samples in ends.chunk_by(|a, b| a.0 == b.0) {
                busiest.rank_samples = busiest.rank_samples.max(samples(rank_samples));
            }
            for member_samples in ends.chunk_by(|a, b| a.0 / member == b.0 / member) {
                busiest.member_samples = busiest.member_samples.max(samples(member_samples));
            }
        }
        busiest
    }
}

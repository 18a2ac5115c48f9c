//! What redistributions take.

use std::time::Duration;

use super::LinkModel;
use crate::Redistribution;

/// The load that a redistribution puts on each level of links, in samples: see [`LinkModel::traffic`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Traffic {
    /// By level of links, from the inside.
    by_level: Vec<LevelTraffic>,
}

/// What passes the links of one level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct LevelTraffic {
    /// The most messages between members of a unit that any rank sends or receives: a rank handles them one after another.
    messages: usize,
    /// The most samples that any rank sends or receives beyond its member, by its one adapter.
    of_rank: usize,
    /// The most samples that any member (a rank, a host) sends or receives, by all its adapters.
    of_member: usize,
}

impl LinkModel {
    /// The time of a redistribution of samples of `sample_bytes` bytes: as long as the busiest rank sends or receives, one message after
    /// another, or the busiest host by all its adapters, if that takes longer; zero when nothing moves. Messages within hosts and between them go at the same time.
    ///
    /// Where many ranks send to one, their messages arrive one after another: it receives all bytes by its own adapter, and pays the
    /// latency once a message, as in a pairwise exchange.
    #[must_use]
    pub fn redistribution(&self, redistribution: &Redistribution, sample_bytes: u64) -> Duration {
        self.traffic_time(&self.traffic(redistribution), sample_bytes)
    }

    /// The load that a redistribution puts on the links of this model. It does not depend on the size of a sample, and serves all layers
    /// that are redistributed in the same way. O(levels x moves x log moves).
    #[must_use]
    pub fn traffic(&self, redistribution: &Redistribution) -> Traffic {
        let mut moves: Vec<Move> = redistribution
            .moves()
            .iter()
            .map(|m| Move { from: m.from_rank, to: m.to_rank, samples: m.samples.len() })
            .collect();
        let mut by_level = Vec::with_capacity(self.levels.len());
        let mut member = 1;
        for (level, unit) in self.units().enumerate() {
            let (here, beyond): (Vec<Move>, Vec<Move>) =
                moves.iter().partition(|m| m.from / unit == m.to / unit);
            // What goes beyond a rack passes the port of its host, too. What leaves a host does not pass the links inside of it.
            let passing = if level == 0 { &here } else { &moves };
            by_level
                .push(LevelTraffic { messages: most_messages(&here), ..LevelTraffic::of(passing, member) });
            (moves, member) = (beyond, unit);
        }
        Traffic { by_level }
    }

    /// The time that [`traffic`](Self::traffic) of the same model takes with samples of `sample_bytes` bytes.
    #[must_use]
    pub fn traffic_time(&self, traffic: &Traffic, sample_bytes: u64) -> Duration {
        let mut longest = Duration::ZERO;
        for (level, traffic) in self.levels.iter().zip(&traffic.by_level) {
            let bytes = |samples: usize| (samples as u64).saturating_mul(sample_bytes) as f64;
            let slowest = bytes(traffic.of_rank).max(bytes(traffic.of_member) / level.adapters as f64);
            let steps = super::Steps { count: traffic.messages as f64, bytes: slowest };
            if traffic.messages > 0 {
                longest = longest.max(level.time(steps));
            } else if slowest > 0.0 {
                // On their way farther out, where the startup and the latency are.
                longest = longest.max(level.parts(steps, level.bandwidth_bytes_per_s).1);
            }
        }
        longest
    }

    /// A lower bound on the time in which one rank sends so many bytes in so many messages, one or more, by all levels of links at the
    /// same time: with a startup and a latency, also for no bytes.
    #[must_use]
    pub fn least_send(&self, bytes: u64, messages: usize) -> Duration {
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
struct Move {
    from: usize,
    to: usize,
    samples: usize,
}

/// The most messages that any rank sends or receives.
fn most_messages(moves: &[Move]) -> usize {
    let most = |end: fn(&Move) -> usize| {
        let mut ends: Vec<usize> = moves.iter().map(end).collect();
        ends.sort_unstable();
        ends.chunk_by(|a, b| a == b).map(<[usize]>::len).max().unwrap_or(0)
    };
    most(|m| m.from).max(most(|m| m.to))
}

impl LevelTraffic {
    /// Of messages that leave members of `member` ranks.
    fn of(moves: &[Move], member: usize) -> Self {
        let mut ends: Vec<(usize, usize)> = Vec::with_capacity(moves.len());
        let mut busiest = Self::default();
        for end in [|m: &Move| m.from, |m: &Move| m.to] {
            ends.clear();
            ends.extend(moves.iter().map(|m| (end(m), m.samples)));
            ends.sort_unstable_by_key(|&(rank, _)| rank);
            let samples = |ends: &[(usize, usize)]| ends.iter().map(|&(_, samples)| samples).sum::<usize>();
            for of_rank in ends.chunk_by(|a, b| a.0 == b.0) {
                busiest.of_rank = busiest.of_rank.max(samples(of_rank));
            }
            for of_member in ends.chunk_by(|a, b| a.0 / member == b.0 / member) {
                busiest.of_member = busiest.of_member.max(samples(of_member));
            }
        }
        busiest
    }
}

//! One level of links, all alike.

use std::time::Duration;

use super::{Algorithm, CollectiveKind, Steps};

/// The figures of one level: the links between the ranks of a host, between the hosts of a cluster, and so on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// Ranks that it connects, those of the levels inside it included; a multiple of theirs. `None` is any number.
    pub(super) ranks: Option<usize>,
    pub(super) startup: Duration,
    pub(super) latency: Duration,
    /// What one adapter achieves in one direction.
    pub(super) bandwidth_bytes_per_s: f64,
    /// Of each of its members (a rank, or a host): a rank uses one of them, the ranks of a host use all.
    pub(super) adapters: usize,
    /// How an all-reduce may go about it.
    pub(super) algorithms: Algorithms,
}

/// Which algorithms an all-reduce may choose from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithms {
    Both,
    Only(Algorithm),
}

/// How many members of a level an operation is among, and the bandwidth that each of them has for it in one direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Among {
    pub(super) members: usize,
    pub(super) bandwidth_bytes_per_s: f64,
}

impl Level {
    pub(super) fn new(startup: Duration, latency: Duration, bandwidth_bytes_per_s: f64) -> Self {
        let (ranks, adapters, algorithms) = (None, 1, Algorithms::Both);
        Self { ranks, startup, latency, bandwidth_bytes_per_s, adapters, algorithms }
    }

    /// Members that use one adapter.
    pub(super) fn among(&self, members: usize) -> Among {
        Among { members, bandwidth_bytes_per_s: self.bandwidth_bytes_per_s }
    }

    /// Of steps that use one adapter.
    pub(super) fn time(&self, steps: Steps) -> Duration {
        self.time_at(steps, self.bandwidth_bytes_per_s)
    }

    fn time_at(&self, steps: Steps, bandwidth_bytes_per_s: f64) -> Duration {
        let (begin, transfer) = self.parts(steps, bandwidth_bytes_per_s);
        begin.saturating_add(transfer)
    }

    /// Startup and latencies, and the time of the bytes.
    pub(super) fn parts(&self, steps: Steps, bandwidth_bytes_per_s: f64) -> (Duration, Duration) {
        // Longer than a Duration can say only for absurd inputs, for which "for ever" is the answer.
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let begin = self.startup.as_secs_f64() + steps.count * self.latency.as_secs_f64();
        (time(begin), time(steps.bytes / bandwidth_bytes_per_s))
    }

    pub(super) fn cost(&self, collective: CollectiveKind, among: Among, bytes: u64) -> Duration {
        let steps = self.steps(collective, among, bytes);
        steps.map_or(Duration::ZERO, |steps| self.time_at(steps, among.bandwidth_bytes_per_s))
    }

    /// Those of the fastest algorithm; `None` for a single rank.
    pub(super) fn steps(&self, collective: CollectiveKind, among: Among, bytes: u64) -> Option<Steps> {
        let (ranks, bytes) = (among.members, bytes as f64);
        if ranks <= 1 && collective != CollectiveKind::Send {
            return None;
        }
        let time = |steps: Steps| self.time_at(steps, among.bandwidth_bytes_per_s);
        let faster = |one: Steps, other: Steps| if time(other) < time(one) { other } else { one };
        Some(match (collective, self.algorithms) {
            (CollectiveKind::AllReduce, Algorithms::Both) => faster(
                self.all_reduce_steps(Algorithm::Ring, among, bytes),
                self.all_reduce_steps(Algorithm::Tree, among, bytes),
            ),
            (CollectiveKind::AllReduce, Algorithms::Only(algorithm)) => {
                self.all_reduce_steps(algorithm, among, bytes)
            }
            // A pairwise exchange has as many steps as a ring, of the same sizes.
            (CollectiveKind::ReduceScatter | CollectiveKind::AllGather | CollectiveKind::AllToAll, _) => {
                Steps::ring(ranks, 1.0, bytes)
            }
            (CollectiveKind::Broadcast, _) => {
                faster(Steps::binomial_tree(ranks, bytes), Steps::scatter_and_gather(ranks, bytes))
            }
            (CollectiveKind::Send, _) => Steps { count: 1.0, bytes },
            (CollectiveKind::Barrier, _) => Steps::binomial_tree(ranks, 0.0),
        })
    }

    pub(super) fn all_reduce_steps(&self, algorithm: Algorithm, among: Among, bytes: f64) -> Steps {
        match algorithm {
            Algorithm::Ring => Steps::ring(among.members, 2.0, bytes),
            Algorithm::Tree => {
                let time_per_byte = 1.0 / among.bandwidth_bytes_per_s;
                Steps::two_trees(among.members, bytes, self.latency.as_secs_f64(), time_per_byte)
            }
        }
    }
}

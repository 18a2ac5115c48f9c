//! One level of links with equal parameters, and the time of an operation on it. A *level* connects
//! *members*: the first level the ranks of a host, the second the hosts of a cluster or rack. A
//! *step* of an operation is a round of messages.

use std::time::Duration;

use super::{Algorithm, CollectiveKind, Steps};

/// Parameters of one level: the links between the ranks of a host, between the hosts of a cluster,
/// and so on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    /// Number of connected ranks, including those of the inner levels; a multiple of theirs. `None`
    /// means any number.
    pub(super) ranks: Option<usize>,
    /// Time that an operation pays once on this level.
    pub(super) startup: Duration,
    /// Time that each step of an operation pays.
    pub(super) latency: Duration,
    /// Achieved bandwidth of one adapter in one direction, in bytes per second.
    pub(super) bandwidth_bytes_per_s: f64,
    /// Number of adapters of each member (a rank or a host). A rank uses one of them, the ranks of
    /// a host use all.
    pub(super) adapters: usize,
    /// Algorithms from which an all-reduce chooses.
    pub(super) algorithms: Algorithms,
}

/// Set of algorithms from which an all-reduce chooses the fastest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithms {
    /// Ring and tree.
    Both,
    /// Only this algorithm.
    Only(Algorithm),
}

/// Number of members of a level in an operation, and the bandwidth of each of them in one
/// direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LevelMembers {
    /// Number of members (ranks or hosts) that take part.
    pub(super) members: usize,
    /// Bandwidth of each member in one direction, in bytes per second, over the adapters that it
    /// uses.
    pub(super) bandwidth_bytes_per_s: f64,
}

impl Level {
    /// Creates a level of any number of ranks, with one adapter for each member and both all-reduce
    /// algorithms.
    pub(super) fn new(startup: Duration, latency: Duration, bandwidth_bytes_per_s: f64) -> Self {
        let (ranks, adapters, algorithms) = (None, 1, Algorithms::Both);
        Self { ranks, startup, latency, bandwidth_bytes_per_s, adapters, algorithms }
    }

    /// Returns the parameters of an operation among `members` members that use one adapter each.
    pub(super) fn members(&self, members: usize) -> LevelMembers {
        LevelMembers { members, bandwidth_bytes_per_s: self.bandwidth_bytes_per_s }
    }

    /// Returns the startup time plus the time of `steps` of members that use one adapter each.
    pub(super) fn time(&self, steps: Steps) -> Duration {
        self.time_at(steps, self.bandwidth_bytes_per_s)
    }

    fn time_at(&self, steps: Steps, bandwidth_bytes_per_s: f64) -> Duration {
        let (begin, transfer) = self.time_parts(steps, bandwidth_bytes_per_s);
        begin.saturating_add(transfer)
    }

    /// Returns the startup time plus the latencies of `steps`, and the transfer time of their
    /// bytes.
    pub(super) fn time_parts(&self, steps: Steps, bandwidth_bytes_per_s: f64) -> (Duration, Duration) {
        // Only absurd inputs exceed the range of a Duration: the time is then the maximum.
        let time = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        let begin = self.startup.as_secs_f64() + steps.count * self.latency.as_secs_f64();
        (time(begin), time(steps.bytes / bandwidth_bytes_per_s))
    }

    /// Returns the time of an operation on this level by the fastest algorithm. Zero for fewer than
    /// two members, except for a `Send`. `bytes` are counted as documented for the
    /// [`CollectiveKind`].
    pub(super) fn cost(&self, collective: CollectiveKind, among: LevelMembers, bytes: u64) -> Duration {
        let steps = self.steps(collective, among, bytes);
        steps.map_or(Duration::ZERO, |steps| self.time_at(steps, among.bandwidth_bytes_per_s))
    }

    /// Returns the steps of the fastest algorithm of an operation. `None` for fewer than two
    /// members, except for a `Send`. `bytes` are counted as documented for the [`CollectiveKind`].
    pub(super) fn steps(&self, collective: CollectiveKind, among: LevelMembers, bytes: u64) -> Option<Steps> {
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
            // A pairwise exchange has the same steps as a ring.
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

    /// Returns the steps of an all-reduce of `bytes` bytes with the given algorithm.
    pub(super) fn all_reduce_steps(&self, algorithm: Algorithm, among: LevelMembers, bytes: f64) -> Steps {
        match algorithm {
            Algorithm::Ring => Steps::ring(among.members, 2.0, bytes),
            Algorithm::Tree => {
                let time_per_byte = 1.0 / among.bandwidth_bytes_per_s;
                Steps::two_trees(among.members, bytes, self.latency.as_secs_f64(), time_per_byte)
            }
        }
    }
}

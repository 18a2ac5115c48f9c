//! One level of links with equal parameters, and the time of an operation on it. A *level* connects
//! *members*: the first level the ranks of a host, the second the hosts of a cluster or rack. A
//! *step* of an operation is a round of messages.

use std::time::Duration;

use super::protocol::{Protocol, Variant};
use super::{Algorithm, CollectiveKind, Steps};

/// Parameters of one level: the links between the ranks of a host, between the hosts of a cluster,
/// and so on.
///
/// Without variants, the time of an operation is startup + steps * latency + bytes / bandwidth,
/// with the steps of the fastest algorithm. With variants, it is the time of the fastest variant,
/// except for a barrier.
#[derive(Debug, Clone, PartialEq)]
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
    /// Algorithms and protocols of the communication library.
    pub(super) variants: Vec<Variant>,
    /// Fractions of the bandwidth that groups of 2, 3, ... members achieve. The last one is that of
    /// all larger groups. Empty: 1.
    pub(super) by_members: Vec<f64>,
}

/// Operation on one level: its parameters, from which the time follows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Run {
    pub(super) algorithm: Algorithm,
    /// Time paid once, in seconds.
    startup_s: f64,
    /// Startup time plus the latencies, in seconds.
    begin_s: f64,
    /// Bytes that a member sends or receives.
    bytes: f64,
    /// Achieved bandwidth, in bytes per second.
    bytes_per_s: f64,
}

impl Run {
    /// Time paid once an operation.
    pub(super) fn startup(&self) -> Duration {
        duration(self.startup_s)
    }

    /// Startup time plus the latencies.
    pub(super) fn begin(&self) -> Duration {
        duration(self.begin_s)
    }

    /// Bytes that a member sends or receives.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes
    }

    /// Transfer time of the bytes.
    pub(super) fn transfer(&self) -> Duration {
        self.transfer_of(self.bytes)
    }

    /// Transfer time of another number of bytes.
    pub(super) fn transfer_of(&self, bytes: f64) -> Duration {
        duration(bytes / self.bytes_per_s)
    }

    fn seconds(&self) -> f64 {
        self.begin_s + self.bytes / self.bytes_per_s
    }

    fn faster(self, other: Self) -> Self {
        if other.seconds() < self.seconds() { other } else { self }
    }
}

/// Returns the duration of `seconds`. Only absurd inputs exceed the range of a `Duration`: the
/// result is then the maximum.
fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
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
        let (variants, by_members) = (Vec::new(), Vec::new());
        Self { ranks, startup, latency, bandwidth_bytes_per_s, adapters, algorithms, variants, by_members }
    }

    /// Returns the parameters of an operation among `members` members that use one adapter each.
    pub(super) fn members(&self, members: usize) -> LevelMembers {
        LevelMembers { members, bandwidth_bytes_per_s: self.bandwidth_among(members) }
    }

    /// Bandwidth of one adapter in a group of `members` members, in bytes per second.
    pub(super) fn bandwidth_among(&self, members: usize) -> f64 {
        let last = self.by_members.len().saturating_sub(1);
        let fraction = self.by_members.get(members.saturating_sub(2).min(last)).filter(|_| members > 1);
        self.bandwidth_bytes_per_s * fraction.unwrap_or(&1.0)
    }

    /// Returns the minimum transfer time of an all-reduce among `members` members, of which each
    /// uses adapters of `adapters` times one adapter's bandwidth, in seconds per byte.
    pub(super) fn min_seconds_per_byte(&self, members: usize, adapters: usize) -> f64 {
        if members <= 1 {
            return 0.0;
        }
        let ring = Steps::ring(members, 2.0, 1.0).bytes;
        // Trees move more bytes than a ring, or as many.
        let bytes = |variant: &Variant| if variant.algorithm == Algorithm::Switch { 1.0 } else { ring };
        let times = self.variants.iter().map(|variant| bytes(variant) / variant.achieved);
        let without_variants =
            if self.algorithms == Algorithms::Only(Algorithm::Switch) { 1.0 } else { ring };
        times.min_by(f64::total_cmp).unwrap_or(without_variants)
            / (self.bandwidth_among(members) * adapters as f64)
    }

    /// Returns the time in which a member sends `count` messages (at least one) of `bytes` bytes in
    /// total to other members over one adapter. Without variants, it sends one after another. With
    /// variants, they are one operation: the first chunk pays the latency of the variant, and every
    /// further message that of the level.
    pub(super) fn messages(&self, count: f64, bytes: f64) -> Duration {
        let bytes_per_s = self.bandwidth_among(2);
        let variants = self.variants.iter().filter(|variant| variant.sends_messages());
        let times = variants
            .map(|variant| variant.startup_s + variant.latency_s + bytes / (bytes_per_s * variant.achieved));
        times.min_by(f64::total_cmp).map_or_else(
            || {
                let run = self.run_of(Algorithm::Ring, Steps { count, bytes }, bytes_per_s);
                run.begin().saturating_add(run.transfer())
            },
            |seconds| duration(seconds + (count - 1.0).max(0.0) * self.latency.as_secs_f64()),
        )
    }

    /// Returns the time in which `bytes` bytes pass one adapter.
    pub(super) fn passing(&self, bytes: f64) -> Duration {
        duration(bytes / self.bandwidth_bytes_per_s)
    }

    /// Returns steps on this level, without a variant.
    fn run_of(&self, algorithm: Algorithm, steps: Steps, bytes_per_s: f64) -> Run {
        let startup_s = self.startup.as_secs_f64();
        let begin_s = startup_s + steps.count * self.latency.as_secs_f64();
        Run { algorithm, startup_s, begin_s, bytes: steps.bytes, bytes_per_s }
    }

    /// Returns the time of an operation on this level by the fastest algorithm. Zero for fewer than
    /// two members, except for a `Send`. `bytes` are counted as documented for the
    /// [`CollectiveKind`].
    pub(super) fn cost(&self, collective: CollectiveKind, among: LevelMembers, bytes: u64) -> Duration {
        let run = self.run(collective, among, bytes, None);
        run.map_or(Duration::ZERO, |run| run.begin().saturating_add(run.transfer()))
    }

    /// Returns the fastest run of an operation with the given protocol, or with any one. A level
    /// without variants has all protocols, and one without variants of the given protocol uses its
    /// fastest variant. `None` for fewer than two members, except for a `Send`.
    pub(super) fn run(
        &self,
        collective: CollectiveKind,
        among: LevelMembers,
        bytes: u64,
        protocol: Option<Protocol>,
    ) -> Option<Run> {
        if among.members <= 1 && collective != CollectiveKind::Send {
            return None;
        }
        let algorithm = match self.algorithms {
            Algorithms::Only(algorithm) => Some(algorithm),
            Algorithms::Both => None,
        };
        self.fastest_variant(collective, algorithm, among, bytes, protocol).or_else(|| {
            let steps = self.steps(collective, among, bytes)?;
            Some(self.run_of(Algorithm::Ring, steps, among.bandwidth_bytes_per_s))
        })
    }

    /// Returns an all-reduce among at least two members with the given algorithm. If the level has
    /// variants and none of this algorithm, the fastest one.
    pub(super) fn all_reduce_run(
        &self,
        algorithm: Algorithm,
        among: LevelMembers,
        bytes: u64,
        protocol: Option<Protocol>,
    ) -> Run {
        let variant =
            self.fastest_variant(CollectiveKind::AllReduce, Some(algorithm), among, bytes, protocol);
        variant.unwrap_or_else(|| {
            let steps = self.all_reduce_steps(algorithm, among, bytes as f64);
            self.run_of(algorithm, steps, among.bandwidth_bytes_per_s)
        })
    }

    /// Returns the run of the fastest variant. `None` if the operation uses none.
    fn fastest_variant(
        &self,
        collective: CollectiveKind,
        algorithm: Option<Algorithm>,
        among: LevelMembers,
        bytes: u64,
        protocol: Option<Protocol>,
    ) -> Option<Run> {
        let fastest = |algorithm: Option<Algorithm>, protocol: Option<Protocol>| {
            let mut fastest: Option<Run> = None;
            for variant in &self.variants {
                if protocol.is_some_and(|protocol| protocol != variant.protocol)
                    || algorithm.is_some_and(|algorithm| algorithm != variant.algorithm)
                {
                    continue;
                }
                let Some(steps) = variant.steps(collective, among.members, bytes as f64) else { continue };
                let run = Run {
                    algorithm: variant.algorithm,
                    startup_s: variant.startup_s,
                    begin_s: variant.startup_s + steps.count * variant.latency_s,
                    bytes: steps.bytes,
                    bytes_per_s: among.bandwidth_bytes_per_s * variant.achieved,
                };
                fastest = Some(fastest.map_or(run, |fastest| fastest.faster(run)));
            }
            fastest
        };
        let algorithm = algorithm.filter(|_| collective == CollectiveKind::AllReduce);
        fastest(algorithm, protocol)
            .or_else(|| protocol.and_then(|_| fastest(algorithm, None)))
            .or_else(|| algorithm.and_then(|_| fastest(None, protocol)))
            .or_else(|| fastest(None, None))
    }

    /// Returns the steps of the fastest algorithm of an operation, without variants. `None` for
    /// fewer than two members, except for a `Send`. `bytes` are counted as documented for the
    /// [`CollectiveKind`].
    pub(super) fn steps(&self, collective: CollectiveKind, among: LevelMembers, bytes: u64) -> Option<Steps> {
        let (ranks, bytes) = (among.members, bytes as f64);
        if ranks <= 1 && collective != CollectiveKind::Send {
            return None;
        }
        let seconds = |steps: Steps| {
            steps.count * self.latency.as_secs_f64() + steps.bytes / among.bandwidth_bytes_per_s
        };
        let faster = |one: Steps, other: Steps| if seconds(other) < seconds(one) { other } else { one };
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
            Algorithm::Switch => Steps::switch(bytes),
        }
    }
}

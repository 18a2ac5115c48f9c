//! One level of links, all alike.

use std::time::Duration;

use super::{Algorithm, Collective, Steps};

/// The figures of one level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Level {
    pub(super) startup: Duration,
    pub(super) latency: Duration,
    pub(super) bandwidth_bytes_per_s: f64,
}

impl Level {
    pub(super) fn time(&self, steps: Steps) -> Duration {
        let seconds = self.startup.as_secs_f64()
            + steps.count * self.latency.as_secs_f64()
            + steps.bytes / self.bandwidth_bytes_per_s;
        // Longer than a Duration can say only for absurd inputs, for which "for ever" is the answer.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }

    pub(super) fn cost(&self, collective: Collective, ranks: usize, bytes: u64) -> Duration {
        self.steps(collective, ranks, bytes).map_or(Duration::ZERO, |steps| self.time(steps))
    }

    pub(super) fn all_reduce_by(&self, algorithm: Algorithm, ranks: usize, bytes: u64) -> Duration {
        if ranks <= 1 {
            return Duration::ZERO;
        }
        self.time(self.all_reduce_steps(algorithm, ranks, bytes as f64))
    }

    /// Those of the fastest algorithm; `None` where there is nobody to talk to.
    pub(super) fn steps(&self, collective: Collective, ranks: usize, bytes: u64) -> Option<Steps> {
        let bytes = bytes as f64;
        if ranks <= 1 && collective != Collective::Send {
            return None;
        }
        let faster = |one: Steps, other: Steps| if self.time(other) < self.time(one) { other } else { one };
        Some(match collective {
            Collective::AllReduce => faster(
                self.all_reduce_steps(Algorithm::Ring, ranks, bytes),
                self.all_reduce_steps(Algorithm::Tree, ranks, bytes),
            ),
            // A pairwise exchange has as many steps as a ring, of the same sizes.
            Collective::ReduceScatter | Collective::AllGather | Collective::AllToAll => {
                Steps::ring(ranks, 1.0, bytes)
            }
            Collective::Broadcast => {
                faster(Steps::binomial_tree(ranks, bytes), Steps::scatter_and_gather(ranks, bytes))
            }
            Collective::Send => Steps { count: 1.0, bytes },
            Collective::Barrier => Steps::binomial_tree(ranks, 0.0),
        })
    }

    fn all_reduce_steps(&self, algorithm: Algorithm, ranks: usize, bytes: f64) -> Steps {
        match algorithm {
            Algorithm::Ring => Steps::ring(ranks, 2.0, bytes),
            Algorithm::Tree => {
                Steps::two_trees(ranks, bytes, self.latency.as_secs_f64(), 1.0 / self.bandwidth_bytes_per_s)
            }
        }
    }
}

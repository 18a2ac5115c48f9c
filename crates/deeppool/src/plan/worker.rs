//! Plans of equal workers.

use serde::{Deserialize, Serialize};

/// The workers of a plan of equal workers: replicas of each other, each with its GPUs and its part of the batch.
///
/// Worker w has the GPUs from w x `gpus` on, and the samples from w x (batch / `replicas`) on. Only gradients go from one to
/// another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedWorker {
    /// How many GPUs each has.
    pub gpus: usize,
    /// How many there are.
    pub replicas: usize,
    /// The time of an iteration of one of them alone, with its part of the batch.
    pub iteration_us: f64,
    /// The time of the same on one GPU.
    pub single_gpu_us: f64,
}

impl PlannedWorker {
    /// How many times as fast as one GPU a worker alone is, with its part of the batch.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        self.single_gpu_us / self.iteration_us
    }

    /// How many of the workers have GPUs of more than one host, where each host has so many GPUs.
    #[must_use]
    pub fn across_hosts(&self, gpus_a_host: usize) -> usize {
        let host = |gpu: usize| gpu / gpus_a_host.max(1);
        let is_across = |&worker: &usize| {
            let first = worker.saturating_mul(self.gpus);
            host(first) != host(first.saturating_add(self.gpus.saturating_sub(1)))
        };
        (0..self.replicas).filter(is_across).count()
    }
}

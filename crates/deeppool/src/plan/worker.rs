//! The workers of hybrid parallelism.

use serde::{Deserialize, Serialize};

/// The equal workers of a plan. They are replicas of each other, each with its own GPUs and its
/// part of the batch.
///
/// Worker w has the GPUs from w x `gpus` on, and the samples from w x (batch / `replicas`) on. Only
/// gradients move between workers.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct PlannedWorker {
    /// Number of GPUs per worker.
    pub gpus: usize,
    /// Number of workers.
    pub replicas: usize,
    /// Predicted iteration time of one worker alone with its part of the batch, microseconds.
    pub iteration_us: f64,
    /// Predicted iteration time of one worker's part of the batch on one GPU, microseconds.
    pub single_gpu_us: f64,
}

impl PlannedWorker {
    /// Returns the speed of one worker alone relative to one GPU with the same part of the batch:
    /// the ratio of the two iteration times.
    #[must_use]
    pub fn speed_up(&self) -> f64 {
        self.single_gpu_us / self.iteration_us
    }

    /// Returns the number of workers whose GPUs are on more than one host. Each host has
    /// `gpus_per_host` GPUs, and host h has those from h x `gpus_per_host` on. 0 is treated as 1.
    #[must_use]
    pub fn across_hosts(&self, gpus_per_host: usize) -> usize {
        let host = |gpu: usize| gpu / gpus_per_host.max(1);
        let is_across = |&worker: &usize| {
            let first = worker.saturating_mul(self.gpus);
            host(first) != host(first.saturating_add(self.gpus.saturating_sub(1)))
        };
        (0..self.replicas).filter(is_across).count()
    }
}

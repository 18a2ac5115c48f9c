//! Plans of equal workers.

use serde::{Deserialize, Serialize};

use super::ExecutionPlan;

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

    /// What is wrong with it as the workers of a plan, if anything is: the path of the field inside it, and the problem. Time linear in the
    /// plan's size.
    pub(super) fn problem(&self, plan: &ExecutionPlan) -> Option<(String, String)> {
        let Self { gpus, replicas, .. } = *self;
        let wrong = |path: &str, problem: String| Some((path.to_owned(), problem));
        if gpus.checked_mul(replicas) != Some(plan.gpus) {
            return wrong(
                "worker.gpus",
                format!("{replicas} workers of {gpus} GPUs are not {} GPUs", plan.gpus),
            );
        }
        if plan.batch % replicas != 0 {
            let problem = format!("{replicas} workers cannot share {} samples evenly", plan.batch);
            return wrong("worker.replicas", problem);
        }
        for (path, value) in
            [("worker.iteration_us", self.iteration_us), ("worker.single_gpu_us", self.single_gpu_us)]
        {
            if !(value > 0.0 && value.is_finite()) {
                return wrong(path, format!("expected a finite number above 0, found {value}"));
            }
        }
        plan.layers.iter().enumerate().find_map(|(index, layer)| {
            let each = layer.ranks.len() / replicas;
            let is_of_worker = |(place, &rank): (usize, &usize)| {
                let (worker, place) = (place / each, place % each);
                layer.ranks[place] < gpus && rank == layer.ranks[place] + worker * gpus
            };
            let are_replicas =
                layer.ranks.len() % replicas == 0 && layer.ranks.iter().enumerate().all(is_of_worker);
            let problem = format!("layer `{}` does not run alike on {replicas} workers", layer.name);
            (!are_replicas).then(|| (format!("layers[{index}].ranks"), problem))
        })
    }
}

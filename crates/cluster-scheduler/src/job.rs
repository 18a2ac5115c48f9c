//! Jobs and their arrival. A *kind* of job is a set of jobs with the same iteration times.

use std::time::Duration;

use crate::{JobId, KindId};

/// Training job: its kind, its number of iterations and the numbers of GPUs on which it may run.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// Kind, which determines its iteration times in the [`Table`](crate::Table).
    pub kind: KindId,
    /// Number of iterations after which the job is done, at least 1.
    pub iterations: u64,
    /// Number of GPUs that it wants. It runs on this number unless the policy also chooses the
    /// number ([`Elastic::ModesAndGpus`](crate::Elastic::ModesAndGpus)).
    pub gpus: usize,
    /// Other numbers of GPUs on which it may run, for [elastic](crate::Elastic) policies.
    pub other_gpu_counts: Vec<usize>,
    /// Weight of the job's share relative to other jobs under max-min fairness, more than 0. The
    /// default is 1.
    pub weight: f64,
}

impl Job {
    /// Creates a job that runs on `gpus` GPUs only, with weight 1.
    #[must_use]
    pub fn new(kind: KindId, iterations: u64, gpus: usize) -> Self {
        Self { kind, iterations, gpus, other_gpu_counts: Vec::new(), weight: 1.0 }
    }
}

/// Job and its arrival time: an entry of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrival {
    /// Arrival time from the start of the trace.
    pub at: Duration,
    /// Identifier of the job, unique in the trace.
    pub id: JobId,
    /// Job that arrives.
    pub job: Job,
}

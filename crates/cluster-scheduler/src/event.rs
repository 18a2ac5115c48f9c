use std::time::Duration;

use crate::{GpuId, Job, JobId, Mode};

/// What a [`Scheduler`](crate::Scheduler) is told.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A job has come.
    Arrived(JobId, Job),
    /// A running job has ended so many iterations since it was last heard of, and is in the middle of the next one.
    Progressed(JobId, u64),
    /// A running job has ended so many iterations since it was last heard of, and its GPUs are free: it waits to be placed
    /// again, unless it has done all.
    Ended(JobId, u64),
    /// A running job has failed after so many whole iterations: what it did of the next one is lost, its GPUs are free, and it is placed
    /// again.
    Failed(JobId, u64),
    /// A job is no longer wanted. If it runs, it is stopped at once.
    Cancelled(JobId),
    /// It is the time that was asked for by [`wake_at`](crate::Scheduler::wake_at).
    Woke,
}

/// What a [`Scheduler`](crate::Scheduler) wants to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Run iterations of a job that waits.
    Run(Placement),
    /// A running job is to stop after the iteration that it is in.
    Stop(JobId),
}

/// Where a job's next iterations run.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// The job.
    pub job: JobId,
    /// Its GPUs, in rising order.
    pub gpus: Vec<GpuId>,
    /// How it is parallelised.
    pub mode: Mode,
    /// The job in whose slots or gaps it runs, if it shares its GPUs so.
    pub beside: Option<JobId>,
    /// How long each iteration is expected to take, with what shares the GPUs.
    pub iteration: Duration,
    /// How many iterations it may do before it has to be placed again, if nothing is said meanwhile: after them it has done all, or
    /// has another priority.
    pub iterations: u64,
}

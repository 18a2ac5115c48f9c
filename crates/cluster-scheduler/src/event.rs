//! Events that a driver reports to the scheduler, and commands that it executes. A *guest* is a job
//! that runs in the idle time of another job's GPUs. A job *waits* while it has no placement.

use std::time::Duration;

use crate::{GpuId, Job, JobId, Mode};

/// Event that is reported to a [`Scheduler`](crate::Scheduler).
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// A job has arrived.
    Arrived(JobId, Job),
    /// A running job has completed this number of iterations since its last report and is in the
    /// middle of the next one. The number is less than that of the iterations left in its
    /// [`Placement`].
    Progressed(JobId, u64),
    /// A running job has completed this number of iterations since its last report and has released
    /// its GPUs. It waits for a new placement unless all its iterations are done.
    Ended(JobId, u64),
    /// A running job has failed after completing this number of iterations since its last report.
    /// Its unfinished iteration is lost, its GPUs are free, and it will be placed again.
    Failed(JobId, u64),
    /// A job is cancelled. If it runs, it is stopped at once.
    Cancelled(JobId),
    /// The time requested by [`wake_at`](crate::Scheduler::wake_at) has come.
    TimerExpired,
}

/// Command of a [`Scheduler`](crate::Scheduler) to its driver.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Run iterations of a waiting job as this placement says.
    Run(Placement),
    /// Stop a running job at the end of its current iteration. The driver then reports
    /// [`Event::Ended`], until which the job holds its GPUs.
    Stop(JobId),
}

/// Placement of a job's next iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    /// Identifier of the job.
    pub job: JobId,
    /// GPUs of the job, in increasing order.
    pub gpus: Vec<GpuId>,
    /// Parallelization mode in which the job runs.
    pub mode: Mode,
    /// Job in whose idle time it runs, if it shares GPUs as a guest. `None` otherwise, also for a
    /// job beside which guests run.
    pub beside: Option<JobId>,
    /// Expected duration of an iteration, including the effect of jobs that share the GPUs.
    pub iteration: Duration,
    /// Maximum number of iterations before a new decision: after them the job is done or has
    /// another priority.
    pub iterations: u64,
}

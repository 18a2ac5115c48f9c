//! State of a job in the scheduler. Jobs have an *entry* each, whose index is the order of arrival.
//! A *target* is the placement that the last decision has planned; a *run* is the placement on
//! which the job runs. The *attained* GPU time of a job is that of its completed iterations.

use crate::nanos::nanos;
use crate::policy::{Elastic, Order};
use crate::sharing::is_usable_idle_period;
use crate::table::{Allocation, ExecutionId};
use crate::{Cluster, Error, GpuId, GpuType, Job, JobId, Mode, Placement, Policy, Table};

/// Job that has arrived, also after it has left. Times are in nanoseconds.
#[derive(Debug)]
pub(super) struct Entry {
    /// Identifier of the job in events and commands.
    pub(super) id: JobId,
    /// Job as it arrived.
    pub(super) job: Job,
    /// Arrival time, from the driver's epoch.
    pub(super) arrived: u64,
    /// Number of iterations that have not been reported as completed.
    pub(super) remaining: u64,
    /// Duration of a data-parallel iteration on the GPUs that it wants, of the type on which it is
    /// fastest.
    pub(super) iteration: u64,
    /// Number of [levels](Order::AttainedService) that its attained GPU time has reached; 0 under
    /// other orders.
    pub(super) level: usize,
    /// Permitted ways to run. Those on the number of GPUs that the job wants come first; for the
    /// same number, faster ones come before slower ones.
    pub(super) options: Vec<ExecutionChoice>,
    /// Planned placement. `None` if the job must wait.
    pub(super) target: Option<Assignment>,
    /// Placement on which it runs now, which differs from the target until the job has stopped.
    /// `None` if it does not run.
    pub(super) run: Option<Run>,
    /// Whether the job has neither completed nor been cancelled.
    pub(super) is_active: bool,
}

/// Way to run a job: a number of GPUs of a type, a mode, and the execution on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ExecutionChoice {
    /// Type of the GPUs.
    pub(super) gpu_type: GpuType,
    /// Number of GPUs.
    pub(super) gpus: usize,
    /// Parallelization mode.
    pub(super) mode: Mode,
    /// Index of the execution in the table, for GPUs that are not spread.
    pub(super) execution_id: ExecutionId,
    /// Duration of an iteration without other jobs on the GPUs, in nanoseconds.
    pub(super) iteration: u64,
    /// GPU time of an iteration in nanoseconds, less the part of its idle periods that other jobs
    /// can use if the policy permits that. An *idle period* is the time of an iteration in which a
    /// GPU of the job does not compute.
    pub(super) cost: u64,
}

/// Placement: GPUs, and the execution on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Assignment {
    /// GPUs in increasing order.
    pub(super) gpus: Vec<GpuId>,
    /// Type of the GPUs.
    pub(super) gpu_type: GpuType,
    /// Whether the GPUs are on more hosts than necessary.
    pub(super) spread: bool,
    /// Parallelization mode.
    pub(super) mode: Mode,
    /// Index of the execution in the table.
    pub(super) execution_id: ExecutionId,
    /// Index of the entry of the job in whose idle time it runs, if it shares GPUs as a guest.
    /// `None` otherwise.
    pub(super) beside: Option<usize>,
    /// Expected duration of an iteration, including the effect of jobs that share the GPUs, in
    /// nanoseconds.
    pub(super) iteration: u64,
}

/// Placement on which a job runs, and its progress.
#[derive(Debug)]
pub(super) struct Run {
    /// Placement whose GPUs the job holds.
    pub(super) assignment: Assignment,
    /// Number of iterations that the job may still complete on this placement before it must report
    /// its end.
    pub(super) left: u64,
    /// Whether the job has been told to stop at the end of its current iteration.
    pub(super) stopping: bool,
}

impl Entry {
    /// Creates the entry of a job that arrived at `arrived`, in nanoseconds.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the job has invalid values, [`Error::Impossible`] if it cannot run
    /// anywhere in the cluster.
    pub(super) fn new(
        id: JobId,
        job: Job,
        arrived: u64,
        cluster: &Cluster,
        table: &Table,
        policy: &Policy,
    ) -> Result<Self, Error> {
        let bad = |name, value: String, expected| Err(Error::OutOfRange { name, value, expected });
        if job.iterations == 0 {
            return bad("iterations of a job", "0".into(), "at least 1");
        }
        if !(job.weight > 0.0 && job.weight.is_finite()) {
            return bad("the weight of a job", job.weight.to_string(), "more than 0");
        }
        let impossible = |reason: String| {
            let kind = table.name(job.kind).to_owned();
            Error::Impossible { job: id, kind, gpus: job.gpus, reason }
        };
        let also: &[usize] =
            if policy.elastic == Elastic::ModesAndGpus { &job.other_gpu_counts } else { &[] };
        let mut options = Vec::new();
        for &gpus in std::iter::once(&job.gpus).chain(also) {
            let mut of_count: Vec<ExecutionChoice> = Vec::new();
            for of_type in (0..cluster.types().len() as u16).map(GpuType) {
                let in_mode =
                    |&mode: &Mode| ExecutionChoice::new(of_type, gpus, mode, &job, cluster, table, policy);
                let in_modes = policy.modes.iter().filter_map(in_mode);
                of_count.extend(in_modes.take(if policy.elastic == Elastic::Fixed { 1 } else { usize::MAX }));
            }
            of_count.sort_by_key(|choice| choice.iteration);
            options.extend(of_count);
        }
        // Removes options that another one dominates.
        for index in (0..options.len()).rev() {
            let choice = options[index];
            let better = |(other, better): (usize, &ExecutionChoice)| {
                let same = better.cost == choice.cost
                    && better.iteration == choice.iteration
                    && better.gpus == choice.gpus;
                better.gpu_type == choice.gpu_type && better.is_as_good(&choice) && (!same || other < index)
            };
            if policy.elastic != Elastic::Fixed && options.iter().enumerate().any(better) {
                options.remove(index);
            }
        }
        if options.is_empty() {
            return Err(impossible("no type of GPU has as many, or the table has no time on as many".into()));
        }
        let alone = |choice: &ExecutionChoice| {
            let allocation = Allocation { gpu_type: choice.gpu_type, gpus: choice.gpus, spread: false };
            table.execution(job.kind, allocation, Mode::DataParallel).map(|execution| execution.iteration)
        };
        let wanted = options.iter().filter(|choice| choice.gpus == job.gpus || also.contains(&choice.gpus));
        let iteration = wanted.filter_map(alone).min();
        let iteration =
            iteration.ok_or_else(|| impossible("the table has no time by data parallelism".into()))?;
        if iteration.checked_mul(job.iterations).and_then(|all| all.checked_mul(job.gpus as u64)).is_none() {
            return Err(impossible("it would take longer than 584 years of GPU time".into()));
        }
        Ok(Self {
            id,
            arrived,
            remaining: job.iterations,
            iteration,
            level: 0,
            options,
            target: None,
            run: None,
            is_active: true,
            job,
        })
    }

    /// Returns the GPU time of the completed iterations.
    fn attained(&self) -> u64 {
        (self.job.iterations - self.remaining).saturating_mul(self.service())
    }

    fn service(&self) -> u64 {
        self.iteration.saturating_mul(self.job.gpus as u64)
    }

    /// Updates the level of attained GPU time and returns whether it has changed. Does nothing
    /// under other orders than [`Order::AttainedService`].
    pub(super) fn update_level(&mut self, order: &Order) -> bool {
        let Order::AttainedService { levels } = order else { return false };
        let attained = self.attained();
        let level = levels.iter().filter(|&&level| nanos(level) <= attained).count();
        std::mem::replace(&mut self.level, level) != level
    }

    /// Returns the number of iterations after which the job is done or, by its attained GPU time,
    /// on another level.
    pub(super) fn iterations_of_this_priority(&self, order: &Order) -> u64 {
        let Order::AttainedService { levels } = order else { return self.remaining };
        let next = levels.get(self.level).map(|&level| nanos(level).saturating_sub(self.attained()));
        next.map_or(self.remaining, |next| next.div_ceil(self.service()).clamp(1, self.remaining))
    }

    /// Returns the placement of the running job for the [`Run`](crate::Command::Run) command, or
    /// `None` if it does not run. `beside` is the job in whose idle time it runs as a guest, or
    /// `None`.
    pub(super) fn placement(&self, beside: Option<JobId>) -> Option<Placement> {
        let run = self.run.as_ref()?;
        Some(Placement {
            job: self.id,
            gpus: run.assignment.gpus.clone(),
            mode: run.assignment.mode,
            beside,
            iteration: std::time::Duration::from_nanos(run.assignment.iteration),
            iterations: run.left,
        })
    }
}

impl ExecutionChoice {
    fn new(
        gpu_type: GpuType,
        gpus: usize,
        mode: Mode,
        job: &Job,
        cluster: &Cluster,
        table: &Table,
        policy: &Policy,
    ) -> Option<Self> {
        if gpus == 0 || gpus > cluster.gpus_of(gpu_type) {
            return None;
        }
        let execution_id =
            table.execution_id(job.kind, Allocation { gpu_type, gpus, spread: false }, mode)?;
        let execution = table.at(execution_id);
        let cost = match policy.sharing {
            crate::Sharing::IdlePeriods { efficiency, .. } => {
                let usable: u64 = execution
                    .idle_nanos()
                    .filter(|&idle| is_usable_idle_period(idle, execution.iteration))
                    .sum();
                execution
                    .iteration
                    .saturating_mul(gpus as u64)
                    .saturating_sub((usable as f64 * efficiency) as u64)
            }
            _ => execution.iteration.saturating_mul(gpus as u64),
        };
        Some(Self { gpu_type, gpus, mode, execution_id, iteration: execution.iteration, cost })
    }

    fn is_as_good(&self, other: &Self) -> bool {
        self.gpus <= other.gpus && self.iteration <= other.iteration && self.cost <= other.cost
    }
}

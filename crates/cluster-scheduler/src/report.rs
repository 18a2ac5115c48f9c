//! Results of a simulation. A job *holds* a GPU from its placement until it releases it; several
//! jobs may hold one GPU. The *makespan* is the time at which the last job leaves. A *guest* is a
//! job that runs in the idle time of another job's GPUs.

use std::time::Duration;

use crate::nanos::duration;
use crate::{GpuId, JobId};

/// Results of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Results of all jobs that arrived, in order of arrival.
    pub jobs: Vec<JobRecord>,
    /// Time at which the last job left, from the start of the trace.
    pub makespan: Duration,
    /// Number of GPUs of the cluster.
    pub gpus: usize,
    /// GPU time held by at least one job, summed over GPUs.
    pub held: Duration,
    /// Integral over time of the number of jobs that have arrived and not left: job-seconds.
    pub jobs_in_system: Duration,
    /// Number of events reported to the scheduler.
    pub events: u64,
    /// Placements over time. Empty unless [requested](crate::SimulationOptions::record).
    pub segments: Vec<Segment>,
}

/// Results for one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// Identifier of the job.
    pub id: JobId,
    /// Arrival time from the start of the trace.
    pub arrived: Duration,
    /// Start of its first iteration, from the start of the trace; `None` if it has not started.
    pub started: Option<Duration>,
    /// Time, from the start of the trace, and reason of its departure. `None` if it has not left.
    pub departure: Option<(Duration, Departure)>,
    /// Number of completed iterations.
    pub iterations: u64,
    /// Number of GPUs that it wanted.
    pub gpus: usize,
    /// Duration of the whole job alone with data parallelism on that number of GPUs, of the type on
    /// which it is fastest.
    pub alone: Duration,
}

/// Reason for which a job left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    /// The job completed all iterations.
    Finished,
    /// The job was cancelled.
    Cancelled,
}

/// Period in which a job's iterations followed each other on the same GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// Identifier of the job.
    pub job: JobId,
    /// GPUs of the job, in increasing order.
    pub gpus: Vec<GpuId>,
    /// Job in whose idle time it ran, if it shared GPUs as a guest. `None` otherwise.
    pub beside: Option<JobId>,
    /// Start of the period, from the start of the trace.
    pub from: Duration,
    /// End of the period, from the start of the trace.
    pub to: Duration,
}

impl JobRecord {
    /// Returns the time from arrival to completion, or `None` if the job has not finished.
    #[must_use]
    pub fn completion(&self) -> Option<Duration> {
        match self.departure {
            Some((at, Departure::Finished)) => Some(at.saturating_sub(self.arrived)),
            _ => None,
        }
    }
}

impl Report {
    /// Iterates over the jobs that have finished.
    pub fn finished(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.iter().filter(|job| job.completion().is_some())
    }

    /// Returns the times from arrival to completion of the finished jobs in seconds, in increasing
    /// order.
    pub fn completions(&self) -> Vec<f64> {
        let mut all: Vec<f64> =
            self.jobs.iter().filter_map(JobRecord::completion).map(|time| time.as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns the mean of the [`completions`](Self::completions) in seconds; NaN if no job has
    /// finished.
    #[must_use]
    pub fn mean_completion(&self) -> f64 {
        let all = self.completions();
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// Returns a quantile (0 to 1) of the [`completions`](Self::completions) in seconds,
    /// interpolated; NaN if no job has finished.
    #[must_use]
    pub fn completion_quantile(&self, quantile: f64) -> f64 {
        quantile_of(&self.completions(), quantile)
    }

    /// Returns the GPU time held, in hours, divided by the number of finished jobs; not
    /// finite if none has finished.
    #[must_use]
    pub fn gpu_hours_per_job(&self) -> f64 {
        self.held.as_secs_f64() / 3600.0 / self.finished().count() as f64
    }

    /// Returns the GPU time that the finished jobs take alone with data parallelism, divided by the
    /// GPU time held. It exceeds 1 if sharing gains more than it costs.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        let work = |job: &JobRecord| job.alone.as_secs_f64() * job.gpus as f64;
        self.finished().map(work).sum::<f64>() / self.held.as_secs_f64()
    }

    /// Returns the GPU time held divided by all GPU time until the makespan, 0 to 1; NaN if the
    /// makespan is zero.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.held.as_secs_f64() / (self.makespan.as_secs_f64() * self.gpus as f64)
    }

    /// Returns Jain's index of the finished jobs' speeds relative to running alone, from 1/n for n
    /// jobs to 1: 1 if all are slowed equally. NaN if no job has finished.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let speeds: Vec<f64> = self
            .finished()
            .filter_map(|job| Some(job.alone.as_secs_f64() / job.completion()?.as_secs_f64()))
            .collect();
        let (sum, squares) = speeds.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (speeds.len() as f64 * squares)
    }

    /// Returns the finish-time fairness of each finished job, in increasing order: its completion
    /// time divided by its time on 1/n of the cluster's GPUs. Below 1 is better than an equal part.
    ///
    /// n is the mean number of jobs in the cluster while it was there. A job is assumed to scale
    /// linearly below the number of GPUs that it wants. This is Themis' rho (Mahajan et al., NSDI
    /// 2020, section 3.1), which is at most 1 for every job if sharing benefits every job.
    #[must_use]
    pub fn finish_time_ratios(&self) -> Vec<f64> {
        let left = |job: &JobRecord| job.departure.map_or(self.makespan, |(at, _)| at);
        let came = self.jobs.iter().map(|job| (job.arrived, 1.0));
        let mut changes: Vec<(Duration, f64)> =
            came.chain(self.jobs.iter().map(|job| (left(job), -1.0))).collect();
        changes.sort_by_key(|(at, _)| *at);
        // The integral of the number of jobs up to each change.
        let (mut area, mut jobs, mut last) = (0.0, 0.0, Duration::ZERO);
        let mut areas: Vec<(Duration, f64)> = Vec::with_capacity(changes.len());
        for (at, change) in changes {
            area += jobs * at.saturating_sub(last).as_secs_f64();
            (jobs, last) = (jobs + change, at);
            areas.push((at, area));
        }
        let area = |at: Duration| areas[areas.partition_point(|(other, _)| *other < at)].1;
        let ratio = |job: &JobRecord| {
            let completion = job.completion()?.as_secs_f64();
            let others = (area(left(job)) - area(job.arrived)) / completion;
            let part = self.gpus as f64 / others / job.gpus as f64;
            Some(completion / (job.alone.as_secs_f64() / part.min(1.0)))
        };
        let mut ratios: Vec<f64> = self.jobs.iter().filter_map(ratio).collect();
        ratios.sort_by(f64::total_cmp);
        ratios
    }

    /// Returns the mean number of jobs that have arrived and not left, until the makespan; NaN if
    /// that is zero.
    #[must_use]
    pub fn mean_jobs(&self) -> f64 {
        self.jobs_in_system.as_secs_f64() / self.makespan.as_secs_f64()
    }
}

/// Returns a quantile of values in increasing order, interpolated between neighbours; NaN without
/// values.
pub(crate) fn quantile_of(sorted: &[f64], quantile: f64) -> f64 {
    let position = quantile.clamp(0.0, 1.0) * (sorted.len().saturating_sub(1)) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * (position - below as f64),
        _ => f64::NAN,
    }
}

/// Accumulator of the GPU time held by at least one job.
#[derive(Debug)]
pub(crate) struct HeldTime {
    holders: Vec<u8>,
    since: Vec<u64>,
    total: u128,
}

impl HeldTime {
    /// Creates an accumulator for a number of GPUs that no job holds.
    pub(crate) fn new(gpus: usize) -> Self {
        Self { holders: vec![0; gpus], since: vec![0; gpus], total: 0 }
    }

    /// Records that one more job holds each of the GPUs from `now` on. `now` is in nanoseconds from
    /// the start.
    pub(crate) fn hold(&mut self, now: u64, gpus: &[GpuId]) {
        for gpu in gpus {
            let holders = &mut self.holders[gpu.index()];
            if *holders == 0 {
                self.since[gpu.index()] = now;
            }
            *holders += 1;
        }
    }

    /// Records that one job released each of the GPUs at `now`. `now` is in nanoseconds from the
    /// start.
    pub(crate) fn release(&mut self, now: u64, gpus: &[GpuId]) {
        for gpu in gpus {
            let holders = &mut self.holders[gpu.index()];
            *holders -= 1;
            if *holders == 0 {
                self.total += u128::from(now - self.since[gpu.index()]);
            }
        }
    }

    /// Returns the GPU time of all periods that have ended; a period ends when the last job
    /// releases the GPU.
    pub(crate) fn total(&self) -> Duration {
        duration(self.total)
    }
}

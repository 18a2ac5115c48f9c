use std::time::Duration;

use crate::nanos::duration;
use crate::{GpuId, JobId};

/// What became of the jobs of a simulation.
#[derive(Debug, Clone, PartialEq)]
pub struct Report {
    /// Each job that arrived, in the order of arrivals.
    pub jobs: Vec<JobRecord>,
    /// When the last job left, from time 0.
    pub makespan: Duration,
    /// The GPUs of the cluster.
    pub gpus: usize,
    /// GPU time held by at least one job, added up over GPUs.
    pub held: Duration,
    /// Jobs in the cluster by the time for which they were, added up as they came and went: the integral of the number of jobs.
    pub jobs_in_system: Duration,
    /// How many events the scheduler was told of.
    pub events: u64,
    /// Who ran where and when, if that was [asked for](crate::SimulationOptions::record).
    pub segments: Vec<Segment>,
}

/// What became of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRecord {
    /// The job.
    pub id: JobId,
    /// When it arrived.
    pub arrived: Duration,
    /// When its first iteration began.
    pub started: Option<Duration>,
    /// When and how it left, if it has.
    pub left: Option<(Duration, End)>,
    /// The iterations that it has done.
    pub iterations: u64,
    /// The GPUs that it wanted.
    pub gpus: usize,
    /// What it takes by data parallelism alone on those, of the type on which it is fastest.
    pub alone: Duration,
}

/// How a job left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It did all that it had to do.
    Finished,
    /// It was cancelled.
    Cancelled,
}

/// A stretch of time in which a job's iterations followed each other on the same GPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// The job.
    pub job: JobId,
    /// Its GPUs.
    pub gpus: Vec<GpuId>,
    /// The job in whose slots or gaps it was.
    pub beside: Option<JobId>,
    /// From when.
    pub from: Duration,
    /// Until when.
    pub to: Duration,
}

impl JobRecord {
    /// From arrival to the end, if it has finished.
    #[must_use]
    pub fn completion(&self) -> Option<Duration> {
        match self.left {
            Some((at, End::Finished)) => Some(at.saturating_sub(self.arrived)),
            _ => None,
        }
    }
}

impl Report {
    /// The jobs that have finished.
    pub fn finished(&self) -> impl Iterator<Item = &JobRecord> {
        self.jobs.iter().filter(|job| job.completion().is_some())
    }

    /// Completion times in seconds, the shortest first.
    pub fn completions(&self) -> Vec<f64> {
        let mut all: Vec<f64> =
            self.jobs.iter().filter_map(JobRecord::completion).map(|time| time.as_secs_f64()).collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// The mean completion time in seconds; NaN if nothing has finished.
    #[must_use]
    pub fn mean_completion(&self) -> f64 {
        let all = self.completions();
        all.iter().sum::<f64>() / all.len() as f64
    }

    /// A quantile from 0 to 1 of completion times in seconds, interpolated; NaN if nothing has finished.
    #[must_use]
    pub fn completion_quantile(&self, quantile: f64) -> f64 {
        quantile_of(&self.completions(), quantile)
    }

    /// GPU hours that were held, for each finished job.
    #[must_use]
    pub fn gpu_hours_per_job(&self) -> f64 {
        self.held.as_secs_f64() / 3600.0 / self.finished().count() as f64
    }

    /// GPU time that finished jobs take by data parallelism alone, by the GPU time that was held: more than 1 where sharing makes more of
    /// GPUs than their jobs would alone.
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        let work = |job: &JobRecord| job.alone.as_secs_f64() * job.gpus as f64;
        self.finished().map(work).sum::<f64>() / self.held.as_secs_f64()
    }

    /// The part of the GPUs' time until the makespan that was held.
    #[must_use]
    pub fn utilization(&self) -> f64 {
        self.held.as_secs_f64() / (self.makespan.as_secs_f64() * self.gpus as f64)
    }

    /// Jain's index of the speeds of finished jobs by what they have alone, from 1/n to 1: 1 if all were slowed alike.
    #[must_use]
    pub fn fairness(&self) -> f64 {
        let speeds: Vec<f64> = self
            .finished()
            .filter_map(|job| Some(job.alone.as_secs_f64() / job.completion()?.as_secs_f64()))
            .collect();
        let (sum, squares) = speeds.iter().fold((0.0, 0.0), |(sum, squares), x| (sum + x, squares + x * x));
        sum * sum / (speeds.len() as f64 * squares)
    }

    /// Finish-time fairness: of each finished job, its completion time by what it would take alone on its own 1/n of the cluster's GPUs, the smallest first.
    ///
    /// n is the mean number of jobs in the cluster while it was there, and it scales linearly below the GPUs that it wants. It is Themis' rho (Mahajan et al., NSDI
    /// 2020, section 3.1), which is at most 1 for everybody where sharing is worth it for everybody.
    #[must_use]
    pub fn finish_time_ratios(&self) -> Vec<f64> {
        let left = |job: &JobRecord| job.left.map_or(self.makespan, |(at, _)| at);
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

    /// The mean number of jobs in the cluster until the makespan.
    #[must_use]
    pub fn mean_jobs(&self) -> f64 {
        self.jobs_in_system.as_secs_f64() / self.makespan.as_secs_f64()
    }
}

/// A quantile of figures in rising order, interpolated between neighbours; NaN for none.
pub(crate) fn quantile_of(sorted: &[f64], quantile: f64) -> f64 {
    let position = quantile.clamp(0.0, 1.0) * (sorted.len().saturating_sub(1)) as f64;
    let (below, above) = (position.floor() as usize, position.ceil() as usize);
    match (sorted.get(below), sorted.get(above)) {
        (Some(low), Some(high)) => low + (high - low) * (position - below as f64),
        _ => f64::NAN,
    }
}

/// GPU time as it is held, GPU by GPU.
#[derive(Debug)]
pub(crate) struct Held {
    holders: Vec<u8>,
    since: Vec<u64>,
    total: u128,
}

impl Held {
    pub(crate) fn new(gpus: usize) -> Self {
        Self { holders: vec![0; gpus], since: vec![0; gpus], total: 0 }
    }

    pub(crate) fn take(&mut self, now: u64, gpus: &[GpuId]) {
        for gpu in gpus {
            let holders = &mut self.holders[gpu.index()];
            if *holders == 0 {
                self.since[gpu.index()] = now;
            }
            *holders += 1;
        }
    }

    pub(crate) fn give(&mut self, now: u64, gpus: &[GpuId]) {
        for gpu in gpus {
            let holders = &mut self.holders[gpu.index()];
            *holders -= 1;
            if *holders == 0 {
                self.total += u128::from(now - self.since[gpu.index()]);
            }
        }
    }

    pub(crate) fn total(&self) -> Duration {
        duration(self.total)
    }
}

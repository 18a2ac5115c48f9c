//! Readers for cluster traces and published throughputs, and a generator of jobs fitted to a trace.
//!
//! An invalid file is refused with its line and column. Files are text; decompress compressed ones
//! while reading.

mod gavel;
mod pairs;
mod philly;
mod pollux;
mod quantiles;
mod random;
mod sheet;
mod synthetic;

use std::time::Duration;

pub use gavel::{GavelJob, GavelSpeed, gavel_jobs, gavel_speeds};
pub use pairs::{GavelPair, add_pairs, gavel_pairs};
pub use philly::philly;
pub use pollux::{PolluxStep, pollux_steps, pollux_table};
pub use synthetic::synthetic;

use crate::{Allocation, Arrival, Error, GpuType, Job, JobId, KindId, Mode, Table};
use random::Random;

/// Job of a trace that records its duration and not its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceJob {
    /// Arrival time since the arrival of the first job of the trace.
    pub arrival: Duration,
    /// Time for which the job ran, without queueing.
    pub duration: Duration,
    /// Number of GPUs on which the job ran.
    pub gpus: usize,
}

/// Converts jobs of a trace to jobs of a table. Each job gets a random kind among those that the
/// table has for its number of GPUs, and the number of iterations that takes the trace's duration
/// with data parallelism on GPUs of this type. `seed` determines the random kinds. Jobs are
/// numbered from 0.
///
/// # Errors
///
/// [`Error::Impossible`] for a job with a number of GPUs for which the table has none of the kinds.
pub fn assign(
    jobs: &[TraceJob],
    table: &Table,
    kinds: &[KindId],
    gpu_type: GpuType,
    seed: u64,
) -> Result<Vec<Arrival>, Error> {
    let mut random = Random::new(seed);
    let mut arrivals = Vec::with_capacity(jobs.len());
    for (number, TraceJob { arrival, duration, gpus }) in jobs.iter().copied().enumerate() {
        let id = JobId(number as u64);
        let allocation = Allocation { gpu_type, gpus, spread: false };
        let of_kind = |kind: &KindId| Some((*kind, table.execution(*kind, allocation, Mode::DataParallel)?));
        let possible: Vec<_> = kinds.iter().filter_map(of_kind).collect();
        if possible.is_empty() {
            let reason = "none of the kinds has a time on as many".to_owned();
            return Err(Error::Impossible { job: id, kind: "any kind".into(), gpus, reason });
        }
        let (kind, execution) = possible[random.below(possible.len())];
        let iterations = duration.as_secs_f64() / execution.iteration().as_secs_f64();
        let iterations = (iterations.round() as u64).max(1);
        arrivals.push(Arrival { at: arrival, id, job: Job::new(kind, iterations, gpus) });
    }
    Ok(arrivals)
}

/// Scales the arrival times so that the jobs demand the fraction `load` of the time of `gpus` GPUs
/// until the last arrival; 1 is exactly all of it. The first job arrives at time 0. Jobs that want
/// more than `gpus` GPUs are removed.
#[must_use]
pub fn at_load(jobs: &[TraceJob], gpus: usize, load: f64) -> Vec<TraceJob> {
    let jobs: Vec<TraceJob> = jobs.iter().copied().filter(|job| job.gpus <= gpus).collect();
    let work: f64 = jobs.iter().map(|job| job.duration.as_secs_f64() * job.gpus as f64).sum();
    let first = jobs.first().map_or(Duration::ZERO, |job| job.arrival);
    let span = jobs.last().map_or(Duration::ZERO, |job| job.arrival.saturating_sub(first)).as_secs_f64();
    let factor = if span > 0.0 && load > 0.0 { work / (gpus as f64 * load * span) } else { 1.0 };
    let moved = |job: &TraceJob| {
        let arrival = job.arrival.saturating_sub(first).as_secs_f64() * factor;
        TraceJob { arrival: Duration::try_from_secs_f64(arrival).unwrap_or(Duration::MAX), ..*job }
    };
    jobs.iter().map(moved).collect()
}

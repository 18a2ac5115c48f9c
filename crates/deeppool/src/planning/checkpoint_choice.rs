//! The fastest activation checkpoints with which the program of a placement is within a memory
//! limit.

use std::collections::HashMap;

use burst_planner::{Arrangement, Evaluator, PlanTime};

use super::program_memory::program_bytes;
use super::recompute::Segments;
use crate::Error;
use crate::job::{Job, JobCosts, plan_problem};
use crate::program::LowerOptions;

/// Maximum number of limits of the estimate that are tried.
const MAX_LIMITS: usize = 12;
/// Maximum number of evenly spaced lists of checkpoints that are lowered.
const MAX_EVENLY_SPACED: usize = 8;
/// Estimated memory, relative to the limit, up to which evenly spaced checkpoints are lowered.
const POSSIBLE_UP_TO: f64 = 1.05;
/// Relative difference of two limits of the estimate from which no limit between them is tried.
const RESOLUTION: f64 = 1e-3;

/// The result of [`choose_checkpoints`].
pub(super) struct CheckpointChoice<'a> {
    /// The job with the fastest checkpoints within the limit; without checkpoints if it is within
    /// the limit without.
    pub(super) fastest: Option<Job<'a>>,
    /// The job that needs the least memory, bytes.
    pub(super) smallest: (u64, Job<'a>),
}

/// Chooses checkpoints for an arrangement on `gpus` GPUs. The checkpoints of a job that has some
/// are not changed. About 20 lowerings at most.
///
/// The limit of the estimate of [`Segments`] is found by bisection, so that the memory of the
/// program is within `limit_bytes`. Evenly spaced checkpoints are tried, too.
///
/// # Errors
/// [`Error::Setting`] if the number of micro-batches does not divide the batch.
/// [`Error::Placement`] if the arrangement is not valid for the job.
pub(super) fn choose_checkpoints<'a>(
    job: &Job<'a>,
    gpus: usize,
    arrangement: &Arrangement,
    limit_bytes: u64,
) -> Result<CheckpointChoice<'a>, Error> {
    let bytes = program_bytes(job, gpus, arrangement)?;
    let smallest = (bytes, job.clone());
    if bytes <= limit_bytes {
        return Ok(CheckpointChoice { fastest: Some(job.clone()), smallest });
    }
    if !job.lowering().checkpoints.is_empty() || job.lowering().partial.is_some() {
        return Ok(CheckpointChoice { fastest: None, smallest });
    }
    let max_ranks = arrangement.ranks.iter().map(Vec::len).max().unwrap_or(1);
    let segments = Segments::new(job, max_ranks)?;
    let limit = (arrangement, gpus, limit_bytes);
    let mut choice = Choice { job, segments, limit, smallest, fastest: None, known: HashMap::new() };
    let possible_bytes = choice.bisect(bytes)?;
    choice.try_evenly_spaced(possible_bytes * POSSIBLE_UP_TO)?;
    Ok(CheckpointChoice { fastest: choice.fastest.map(|(_, job)| job), smallest: choice.smallest })
}

/// Computes the times of an arrangement.
///
/// # Errors
/// [`Error::Planner`] if the arrangement is not valid for the job. [`Error::Profile`] if the
/// profile lacks a time.
pub(super) fn time_of(job: &Job<'_>, gpus: usize, arrangement: &Arrangement) -> Result<PlanTime, Error> {
    let mut counts: Vec<usize> = arrangement.ranks.iter().map(Vec::len).collect();
    counts.sort_unstable();
    counts.dedup();
    let problem = plan_problem(job, gpus, &counts)?;
    Ok(Evaluator::new(&problem, JobCosts::new(job))?.evaluate(arrangement)?)
}

/// The search for checkpoints.
struct Choice<'j, 'a> {
    job: &'j Job<'a>,
    segments: Segments,
    /// The arrangement, its number of GPUs, and the limit of its program's memory.
    limit: (&'j Arrangement, usize, u64),
    smallest: (u64, Job<'a>),
    /// The fastest so far, with the time of its recomputation.
    fastest: Option<(f64, Job<'a>)>,
    /// Memory of programs by their checkpoints.
    known: HashMap<Vec<usize>, u64>,
}

impl Choice<'_, '_> {
    /// Returns the memory of the program with the given checkpoints. Stores it if it is the
    /// smallest one, or the fastest one within the limit.
    fn bytes(&mut self, checkpoints: Vec<usize>, recomputed_us: f64) -> Result<u64, Error> {
        if let Some(&bytes) = self.known.get(&checkpoints) {
            return Ok(bytes);
        }
        let names = self.segments.names(self.job, &checkpoints);
        let options = LowerOptions { checkpoints: names, ..self.job.lowering().clone() };
        let job = self.job.with_lowering(options);
        let (arrangement, gpus, limit_bytes) = self.limit;
        let bytes = program_bytes(&job, gpus, arrangement)?;
        if bytes < self.smallest.0 {
            self.smallest = (bytes, job.clone());
        }
        let is_faster = self.fastest.as_ref().is_none_or(|&(fastest_us, _)| recomputed_us < fastest_us);
        if bytes <= limit_bytes && is_faster {
            self.fastest = Some((recomputed_us, job));
        }
        self.known.insert(checkpoints, bytes);
        Ok(bytes)
    }

    /// Tries limits of the estimate. `kept_bytes` is the memory of the program without checkpoints.
    /// Returns the minimum of the limits that are too large.
    fn bisect(&mut self, kept_bytes: u64) -> Result<f64, Error> {
        let limit_bytes = self.limit.2 as f64;
        // With the first, no checkpoints are possible; with the second, programs need too much
        // memory.
        let (mut low, mut high) = (0.0, self.segments.bytes_without());
        let mut guess = high - (kept_bytes as f64 - limit_bytes);
        for _ in 0..MAX_LIMITS {
            let margin = 0.02 * (high - low);
            let next = if guess > low && guess < high { guess } else { f64::midpoint(low, high) };
            let next = next.clamp(low + margin, high - margin);
            guess = f64::NAN;
            match self.segments.fastest_within(next) {
                None => low = next,
                Some((checkpoints, recomputed_us)) => {
                    let bytes = self.bytes(checkpoints, recomputed_us)? as f64;
                    *(if bytes <= limit_bytes { &mut low } else { &mut high }) = next;
                    guess = next + (limit_bytes - bytes);
                }
            }
            if high - low < RESOLUTION * high {
                break;
            }
        }
        Ok(high)
    }

    /// Tries evenly spaced checkpoints that are faster than the fastest so far, those with the
    /// least memory first.
    fn try_evenly_spaced(&mut self, possible_bytes: f64) -> Result<(), Error> {
        let estimated = self.segments.evenly_spaced().map(|list| (self.segments.estimate(&list), list));
        let mut lists: Vec<_> = estimated.filter(|&((_, bytes), _)| bytes <= possible_bytes).collect();
        lists.sort_by(|((_, a), _), ((_, b), _)| a.total_cmp(b));
        let mut left = MAX_EVENLY_SPACED;
        for ((recomputed_us, _), list) in lists {
            let is_faster = self.fastest.as_ref().is_none_or(|&(fastest_us, _)| recomputed_us < fastest_us);
            if is_faster && !self.known.contains_key(&list) {
                self.bytes(list, recomputed_us)?;
                left -= 1;
            }
            if left == 0 {
                break;
            }
        }
        Ok(())
    }
}

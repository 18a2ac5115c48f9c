//! Plans within a memory limit: with recomputed activations or micro-batches if no plan of the job
//! fits.

use burst_planner::Error as Unplanned;

use super::find_plan;
use super::micro_batches::with_micro_batches;
use super::recompute::with_recomputation;
use crate::Error;
use crate::job::{Job, LoweredPlan, data_parallel_bytes};
use crate::plan::PlanRequest;
use crate::program::{ELEMENT_BYTES, LowerOptions};

/// Returns whether more memory could make a plan possible.
fn may_fit_with_more_memory(error: &Unplanned, request: &PlanRequest) -> bool {
    match error {
        Unplanned::MemoryExceeded { .. } => true,
        Unplanned::LimitUnreachable { .. } | Unplanned::DeadlineUnreachable { .. } => {
            request.memory_limit_bytes.is_some()
        }
        _ => false,
    }
}

/// Finds the plan for a request, and the job that it is for: the given one, or, if no plan is
/// within the memory limit, the fastest of these variants:
/// - with [recomputed activations](crate::program::LowerOptions::checkpoints), in increasing
///   number,
/// - with 2, 4, 8 or more micro-batches,
/// - with both, if neither is enough.
///
/// No variant changes the result of training: networks with batch normalisation get no
/// micro-batches.
///
/// # Errors
/// As [`find_plan`]. [`Error::BatchTooLarge`] if no plan is within the memory limit, but there is
/// one of a smaller batch.
pub fn plan_within_memory<'a>(
    job: &Job<'a>,
    request: &PlanRequest,
) -> Result<(Job<'a>, LoweredPlan<'a>), Error> {
    let unplanned = match find_plan(job, request) {
        Err(Error::Planner(error)) if may_fit_with_more_memory(&error, request) => error,
        found => return found.map(|plan| (job.clone(), plan)),
    };
    if request.memory_limit_bytes.is_some_and(|limit| limit < min_state_bytes(job)) {
        return Err(Error::Planner(unplanned));
    }
    let mut search = Search { request, fastest: None, unplanned };
    let recomputed = with_recomputation(job)?;
    search.try_each(recomputed.iter().cloned());
    search.try_each(with_micro_batches(job));
    if let (None, Some(smallest)) = (&search.fastest, recomputed.last()) {
        search.try_each(with_micro_batches(smallest));
    }
    let Search { fastest, unplanned, .. } = search;
    if fastest.is_none() {
        request.stop.check()?;
    }
    match fastest {
        Some(found) => Ok(found),
        None => Err(with_largest_batch(unplanned, recomputed.last().unwrap_or(job), request)?),
    }
}

/// Returns the error of a job without a plan, with the largest batch for which data parallelism is
/// within the memory limit. `smallest` is the variant of the job with the least memory.
/// O(log batch) lowerings.
fn with_largest_batch(
    unplanned: Unplanned,
    smallest: &Job<'_>,
    request: &PlanRequest,
) -> Result<Error, Error> {
    let Unplanned::MemoryExceeded { limit_bytes, .. } = unplanned else {
        return Ok(Error::Planner(unplanned));
    };
    let smallest = smallest.with_lowering(LowerOptions { micro_batches: 1, ..smallest.lowering().clone() });
    // The largest batch that fits is in this range.
    let (mut fits, mut exceeds) = (0, smallest.batch());
    while exceeds - fits > 1 {
        request.stop.check()?;
        let batch = fits + (exceeds - fits) / 2;
        let bytes = data_parallel_bytes(&smallest.with_batch(batch), request.gpus.min(batch))?;
        *(if bytes <= limit_bytes { &mut fits } else { &mut exceeds }) = batch;
    }
    Ok(if fits == 0 { Error::Planner(unplanned) } else { Error::BatchTooLarge { unplanned, largest: fits } })
}

/// Returns a lower bound on the memory of the rank with the largest layer, for any micro-batches:
/// its parameters and their gradients.
fn min_state_bytes(job: &Job<'_>) -> u64 {
    let network = job.costs().network();
    let max_parameters = network.layers().map(|(id, _)| network.own_parameter_count(id)).max().unwrap_or(0);
    2 * ELEMENT_BYTES * max_parameters as u64
}

struct Search<'r, 'a> {
    request: &'r PlanRequest,
    fastest: Option<(Job<'a>, LoweredPlan<'a>)>,
    /// The error of the last job without a plan.
    unplanned: Unplanned,
}

impl<'a> Search<'_, 'a> {
    /// Plans jobs in order of decreasing memory until one has a plan, and further while plans get
    /// faster.
    fn try_each(&mut self, jobs: impl Iterator<Item = Job<'a>>) {
        let mut before_us = f64::INFINITY;
        for job in jobs {
            match find_plan(&job, self.request) {
                Ok(plan) if plan.iteration_us < before_us => {
                    before_us = plan.iteration_us;
                    if self.fastest.as_ref().is_none_or(|(_, fastest)| before_us < fastest.iteration_us) {
                        self.fastest = Some((job, plan));
                    }
                }
                Err(Error::Planner(error)) if may_fit_with_more_memory(&error, self.request) => {
                    // For a limit on amplification or time, the error of the whole batch is the
                    // most informative.
                    if matches!(self.unplanned, Unplanned::MemoryExceeded { .. }) {
                        self.unplanned = error;
                    }
                }
                // Slower, or a time of a smaller shard is missing in a measured profile.
                _ => break,
            }
        }
    }
}

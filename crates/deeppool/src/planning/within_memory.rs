//! Plans where memory is short.

use burst_planner::Error as Unplanned;

use super::find_plan;
use super::micro_batches::cuts;
use super::recompute::recomputing;
use crate::Error;
use crate::job::{Job, LoweredPlan};
use crate::plan::PlanRequest;
use crate::program::ELEMENT_BYTES;

/// Whether more memory could have made a plan possible.
fn is_for_want_of_room(error: &Unplanned, request: &PlanRequest) -> bool {
    match error {
        Unplanned::MemoryExceeded { .. } => true,
        Unplanned::LimitUnreachable { .. } | Unplanned::DeadlineUnreachable { .. } => {
            request.memory_limit_bytes.is_some()
        }
        _ => false,
    }
}

/// Finds the plan that is asked for, with the job that it is of: this one, or where no plan keeps the limit on memory, the fastest
/// that does of the same job
/// - with activations [computed again](crate::program::LowerOptions::checkpoints), more and more of them, and
/// - with its batch cut into 2, 4, 8 or more micro-batches;
/// - with both, where neither is enough.
///
/// Neither changes anything about what is learned: networks with batch normalisation, for which micro-batches would, are not cut.
///
/// # Errors
/// As [`find_plan`].
pub fn plan_within_memory<'a>(
    job: &Job<'a>,
    request: &PlanRequest,
) -> Result<(Job<'a>, LoweredPlan<'a>), Error> {
    let unplanned = match find_plan(job, request) {
        Err(Error::Planner(error)) if is_for_want_of_room(&error, request) => error,
        found => return found.map(|plan| (job.clone(), plan)),
    };
    if request.memory_limit_bytes.is_some_and(|limit| limit < min_state_bytes(job)) {
        return Err(Error::Planner(unplanned));
    }
    let mut search = Search { request, fastest: None, unplanned };
    let recomputing = recomputing(job)?;
    search.try_each(recomputing.iter().cloned());
    search.try_each(cuts(job));
    if let (None, Some(least)) = (&search.fastest, recomputing.last()) {
        search.try_each(cuts(least));
    }
    let Search { fastest, unplanned, .. } = search;
    request.stop.check()?;
    fastest.ok_or(Error::Planner(unplanned))
}

/// What a rank holds at least that has the layer with most parameters, however the batch is cut: these and their gradients.
fn min_state_bytes(job: &Job<'_>) -> u64 {
    let network = job.costs().network();
    let most = network.layers().map(|(id, _)| network.own_parameter_count(id)).max().unwrap_or(0);
    2 * ELEMENT_BYTES * most as u64
}

struct Search<'r, 'a> {
    request: &'r PlanRequest,
    fastest: Option<(Job<'a>, LoweredPlan<'a>)>,
    /// Why the last job without a plan has none.
    unplanned: Unplanned,
}

impl<'a> Search<'_, 'a> {
    /// Tries jobs that hold less and less, until there is a plan, and on as long as plans get faster.
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
                Err(Error::Planner(error)) if is_for_want_of_room(&error, self.request) => {
                    // Of another limit than memory's what the whole batch reaches says most.
                    if matches!(self.unplanned, Unplanned::MemoryExceeded { .. }) {
                        self.unplanned = error;
                    }
                }
                // Slower, or such as times of smaller shards that a measured profile has not.
                _ => break,
            }
        }
    }
}

//! Plans where memory is short.

use burst_planner::Error as Unplanned;

use super::Job;
use crate::Error;
use crate::plan::{ExecutionPlan, PlanRequest};
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

impl Job<'_> {
    /// Finds the plan that is asked for, with the job that it is of: this one, or where no plan keeps the limit on memory, the fastest
    /// that does of the same job
    /// - with activations [computed again](crate::program::LowerOptions::checkpoints), more and more of them, and
    /// - with its batch cut into 2, 4, 8 or more micro-batches;
    /// - with both, where neither is enough.
    ///
    /// Neither changes anything about what is learned: networks with batch normalisation, for which micro-batches would, are not cut.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_with_room(&self, request: &PlanRequest) -> Result<(Self, ExecutionPlan), Error> {
        let unplanned = match self.plan(request) {
            Err(Error::Planner(error)) if is_for_want_of_room(&error, request) => error,
            found => return found.map(|plan| (self.clone(), plan)),
        };
        if request.memory_limit_bytes.is_some_and(|limit| limit < self.least_state_bytes()) {
            return Err(Error::Planner(unplanned));
        }
        let mut search = Search { request, fastest: None, unplanned };
        let recomputing = self.recomputing()?;
        search.try_each(recomputing.iter().cloned());
        search.try_each(self.cuts());
        if let (None, Some(least)) = (&search.fastest, recomputing.last()) {
            search.try_each(least.cuts());
        }
        let Search { fastest, unplanned, .. } = search;
        request.stop.check()?;
        fastest.ok_or(Error::Planner(unplanned))
    }

    /// What a rank holds at least that has the layer with most parameters, however the batch is cut: these and their gradients.
    fn least_state_bytes(&self) -> u64 {
        let network = self.costs().network();
        let most = network.layers().map(|(id, _)| network.own_parameter_count(id)).max().unwrap_or(0);
        2 * ELEMENT_BYTES * most as u64
    }
}

struct Search<'r, 'a> {
    request: &'r PlanRequest,
    fastest: Option<(Job<'a>, ExecutionPlan)>,
    /// Why the last job without a plan has none.
    unplanned: Unplanned,
}

impl<'a> Search<'_, 'a> {
    /// Tries jobs that hold less and less, until there is a plan, and on as long as plans get faster.
    fn try_each(&mut self, jobs: impl Iterator<Item = Job<'a>>) {
        let mut before_us = f64::INFINITY;
        for job in jobs {
            match job.plan(self.request) {
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

//! Batches cut into micro-batches where nothing else has room.

use burst_planner::Error as Unplanned;
use layer_engine::Role;

use super::Job;
use crate::Error;
use crate::plan::{ExecutionPlan, PlanRequest};
use crate::program::LowerOptions;

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
    /// Finds the plan that is asked for, with the job that it is of: this one, or where no plan keeps the limit on memory, the same
    /// job with its batch cut into 2, 4, 8 or more micro-batches. Of these the fastest is taken, where more of them are tried as long
    /// as that makes the plan faster.
    ///
    /// Micro-batches change nothing about what is learned, except with batch normalisation. Such networks are not cut.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    pub fn plan_with_room(&self, request: &PlanRequest) -> Result<(Self, ExecutionPlan), Error> {
        let mut unplanned = match self.plan(request) {
            Err(Error::Planner(error)) if self.can_be_cut() && is_for_want_of_room(&error, request) => error,
            found => return found.map(|plan| (self.clone(), plan)),
        };
        let mut fastest: Option<(Self, ExecutionPlan)> = None;
        let mut micro_batches = 2;
        while micro_batches <= self.batch && self.batch % micro_batches == 0 {
            let lowering = LowerOptions { micro_batches, ..self.lowering.clone() };
            let job = Self { lowering, ..self.clone() };
            micro_batches *= 2;
            match job.plan(request) {
                Ok(plan) => {
                    let before_us = fastest.as_ref().map_or(f64::INFINITY, |(_, plan)| plan.iteration_us);
                    if plan.iteration_us >= before_us {
                        break;
                    }
                    fastest = Some((job, plan));
                }
                Err(Error::Planner(error)) if is_for_want_of_room(&error, request) => unplanned = error,
                // Such as times of smaller shards that a measured profile has not.
                Err(_) => break,
            }
        }
        fastest.ok_or(Error::Planner(unplanned))
    }

    fn can_be_cut(&self) -> bool {
        let mut layers = self.costs.network().layers();
        self.lowering.micro_batches == 1 && layers.all(|(_, layer)| Role::Statistics.elements(layer, 0) == 0)
    }

    /// Samples of a micro-batch.
    ///
    /// # Errors
    /// When micro-batches would differ in size: a plan's costs are those of one for all.
    pub(super) fn micro_batch(&self) -> Result<usize, Error> {
        let count = self.lowering.micro_batches;
        if count > 0 && self.batch % count == 0 {
            return Ok(self.batch / count);
        }
        Err(Error::Setting {
            setting: "the number of micro-batches of a job that is planned",
            expected: "a divisor of its batch",
            got: format!("{count} for {}", self.batch),
        })
    }

    /// The same job with its batch as a whole and all its activations kept.
    pub(super) fn uncut(&self) -> Self {
        let lowering = LowerOptions { micro_batches: 1, checkpoints: Vec::new(), ..self.lowering.clone() };
        Self { lowering, ..self.clone() }
    }
}

//! A plan with its programs.

use std::ops::Deref;

use super::Job;
use crate::plan::ExecutionPlan;
use crate::program::{LoweredTraining, Placement};

/// A plan with the programs that it is lowered to. Each program is lowered on first use, at most
/// once.
///
/// The planner returns it, and [`Job::lower`] creates it from a plan that was read from a file. The
/// simulator and training take it. It dereferences to its [`ExecutionPlan`].
#[derive(Debug, Clone)]
pub struct LoweredPlan<'n> {
    plan: ExecutionPlan,
    training: LoweredTraining<'n>,
}

impl<'n> LoweredPlan<'n> {
    /// Combines a plan of a job with the programs of `placement`, which must be the ranks and the
    /// order of the plan's layers.
    pub(super) fn new(job: &Job<'n>, plan: ExecutionPlan, placement: Placement) -> Self {
        Self::with_programs(plan, job.training(placement))
    }

    /// Combines a plan with `training`, the programs of its ranks and order of layers.
    pub(crate) fn with_programs(plan: ExecutionPlan, training: LoweredTraining<'n>) -> Self {
        Self { plan, training }
    }

    /// The plan, without its programs.
    #[must_use]
    pub fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }

    /// The plan, for changes of fields on which its programs do not depend, such as predicted
    /// times.
    pub(crate) fn plan_mut(&mut self) -> &mut ExecutionPlan {
        &mut self.plan
    }

    /// Returns the plan without its programs.
    #[must_use]
    pub fn into_plan(self) -> ExecutionPlan {
        self.plan
    }

    /// The programs of the plan, for execution and for simulation.
    #[must_use]
    pub fn training(&self) -> &LoweredTraining<'n> {
        &self.training
    }
}

impl Deref for LoweredPlan<'_> {
    type Target = ExecutionPlan;

    fn deref(&self) -> &ExecutionPlan {
        &self.plan
    }
}

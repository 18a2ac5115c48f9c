use std::ops::Deref;

use super::Job;
use crate::plan::ExecutionPlan;
use crate::program::{LoweredTraining, Placement};

/// A plan with the programs that it is lowered to, each of which is made at most once.
///
/// It is made by whoever plans, or by [`Job::lower`] from a plan that was read, and handed on to the simulator and to training.
/// It dereferences to its [`ExecutionPlan`].
#[derive(Debug, Clone)]
pub struct LoweredPlan<'n> {
    plan: ExecutionPlan,
    training: LoweredTraining<'n>,
}

impl<'n> LoweredPlan<'n> {
    pub(super) fn new(job: &Job<'n>, plan: ExecutionPlan, placement: Placement) -> Self {
        Self::with_programs(plan, job.training(placement))
    }

    /// A plan with programs that were made from its placement and options.
    pub(crate) fn with_programs(plan: ExecutionPlan, training: LoweredTraining<'n>) -> Self {
        Self { plan, training }
    }

    /// The plan.
    #[must_use]
    pub fn plan(&self) -> &ExecutionPlan {
        &self.plan
    }

    /// The plan, to be changed in what its programs do not depend on.
    pub(crate) fn plan_mut(&mut self) -> &mut ExecutionPlan {
        &mut self.plan
    }

    /// The plan without its programs.
    #[must_use]
    pub fn into_plan(self) -> ExecutionPlan {
        self.plan
    }

    /// The programs.
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

//! What is trained, and what that costs.

mod explain;
mod frontier;
mod least_load;
mod memory;
mod micro_batches;
mod partial;
mod placement;
mod prediction;
mod recompute;
mod room;
mod scaled;
mod training;
mod workers;

pub use burst_planner::{PathKind, PathStep};
pub use explain::{Instead, RunExplanation};
pub use frontier::PlanFrontier;
pub use training::JobCosts;

use layer_engine::Sgd;

use crate::Error;
use crate::costs::Costs;
use crate::plan::{ExecutionPlan, PlannedLowering};
use crate::program::{LowerOptions, Placement, Program, lower_rotation};

/// A network that is trained with a global batch, how its iterations are lowered, and what they cost.
///
/// Everything that is asked about one training job is asked of this value, so that the answers are about the same thing: plans,
/// the programs that they become, and what those take.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    costs: Costs<'a>,
    batch: usize,
    lowering: LowerOptions,
}

impl<'a> Job<'a> {
    /// A job.
    #[must_use]
    pub fn new(costs: Costs<'a>, batch: usize, lowering: LowerOptions) -> Self {
        Self { costs, batch, lowering }
    }

    /// The job that a plan is for, with this optimiser.
    ///
    /// # Errors
    /// When the plan is of another network, as [`ExecutionPlan::placement`].
    pub fn of_plan(costs: Costs<'a>, plan: &ExecutionPlan, optimizer: Sgd) -> Result<Self, Error> {
        plan.placement(costs.network())?;
        Ok(Self::new(costs, plan.batch, plan.lowering.options(optimizer)))
    }

    /// The costs of its layers and links.
    #[must_use]
    pub fn costs(&self) -> &Costs<'a> {
        &self.costs
    }

    /// Samples of the global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// How an iteration is lowered.
    #[must_use]
    pub fn lowering(&self) -> &LowerOptions {
        &self.lowering
    }

    /// A plan as the program of all its ranks, for execution; with [partial backpropagation](LowerOptions::partial) that of the first
    /// iteration.
    ///
    /// # Errors
    /// When the plan is of another job, or the network does not end in exactly one loss.
    pub fn lower(&self, plan: &ExecutionPlan) -> Result<Program, Error> {
        Ok(self.lower_rotation(plan)?.swap_remove(0))
    }

    /// A plan as the programs of its iterations, until they come again: see [`lower_rotation`].
    ///
    /// # Errors
    /// As [`lower`](Self::lower).
    pub fn lower_rotation(&self, plan: &ExecutionPlan) -> Result<Vec<Program>, Error> {
        lower_rotation(self.costs.network(), &self.placement(plan)?, self.batch, &self.lowering)
    }

    /// Where each layer runs by a plan of this job.
    ///
    /// # Errors
    /// When the plan is of another network, batch or lowering, or has more GPUs than the links connect.
    pub fn placement(&self, plan: &ExecutionPlan) -> Result<Placement, Error> {
        if plan.batch != self.batch {
            return Err(Error::Plan(format!(
                "it is for {} samples a batch, not {}: make another one",
                plan.batch, self.batch
            )));
        }
        if plan.lowering != PlannedLowering::from(&self.lowering) {
            return Err(Error::Plan("it lowers iterations in another way: make another one".into()));
        }
        self.costs.link().check_ranks(plan.gpus)?;
        plan.placement(self.costs.network())
    }
}

//! The training job: a network with its costs, batch and lowering, its plan as programs, and the job as a planning problem.

mod cost_model;
mod layer_memory;
mod lowered_plan;
mod nodes;
mod problem;
mod transfer_bounds;

pub use cost_model::JobCosts;
pub use lowered_plan::LoweredPlan;
pub use nodes::PlannerNodes;
pub(crate) use problem::{check_times, single_gpu_memory_bytes};
pub use problem::{plan_problem, single_gpu_us};

use layer_engine::Sgd;

use crate::Error;
use crate::costs::Costs;
use crate::plan::{ExecutionPlan, PlannedLowering};
use crate::program::{LowerOptions, LoweredTraining, PartialBackpropagation, PartialDepth, Placement};

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

    /// The same job with another global batch.
    pub(crate) fn with_batch(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    /// How an iteration is lowered.
    #[must_use]
    pub fn lowering(&self) -> &LowerOptions {
        &self.lowering
    }

    /// Lowers a plan of this job.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is of another network, batch or lowering, [`Error::Placement`] if its ranks or its order do not fit the
    /// network. Errors of the lowering itself are returned where a program is asked for.
    pub fn lower(&self, plan: ExecutionPlan) -> Result<LoweredPlan<'a>, Error> {
        let placement = self.placement(&plan)?;
        Ok(LoweredPlan::new(self, plan, placement))
    }

    /// The programs of a placement, trained as this job is.
    pub(crate) fn training(&self, placement: Placement) -> LoweredTraining<'a> {
        LoweredTraining::new(self.costs.network(), placement, self.batch, self.lowering.clone())
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

    /// The same job with iterations lowered in another way.
    pub(crate) fn with_lowering(&self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self.clone() }
    }

    /// The same job with its batch as a whole, all its activations kept, and nothing partial.
    pub(crate) fn uncut(&self) -> Self {
        let (checkpoints, partial) = (Vec::new(), None);
        self.with_lowering(LowerOptions { micro_batches: 1, checkpoints, partial, ..self.lowering.clone() })
    }

    /// The same job with partial backpropagation in so many parts, by layers or by the time that the backward steps of the whole batch take
    /// on one GPU.
    ///
    /// # Errors
    /// When there are less than two parts, or the profile lacks a time.
    pub fn with_partial(&self, parts: usize, by_time: bool) -> Result<Self, Error> {
        let network = self.costs.network();
        let mut times = vec![0; network.len()];
        for (id, _) in network.layers().skip(1).filter(|_| by_time) {
            let backward = self.costs.layer_time(id, self.batch)?.backward;
            times[id.index()] = u64::try_from(backward.as_nanos()).unwrap_or(u64::MAX);
        }
        let depth = if by_time { PartialDepth::Time(&times) } else { PartialDepth::Layers };
        let partial = Some(PartialBackpropagation::new(network, parts, depth)?);
        Ok(self.with_lowering(LowerOptions { partial, ..self.lowering.clone() }))
    }

    /// Samples of a micro-batch.
    ///
    /// # Errors
    /// When micro-batches would differ in size: a plan's costs are those of one for all.
    pub(crate) fn micro_batch(&self) -> Result<usize, Error> {
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

    /// An error where something is partial, for what knows nothing of that.
    pub(crate) fn check_whole(&self) -> Result<(), Error> {
        match &self.lowering.partial {
            None => Ok(()),
            Some(partial) => Err(Error::Setting {
                setting: "partial backpropagation",
                expected: "none where plans are compared, explained or chosen by their total",
                got: format!("{} parts", partial.parts()),
            }),
        }
    }
}

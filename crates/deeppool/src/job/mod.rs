//! Training jobs. A [`Job`] is a network with costs, a batch and lowering options. This module
//! lowers its plans to programs, and states it as a problem of the planner. A *placement* is the
//! ranks of each layer and the order of the layers.

mod cost_model;
mod layer_memory;
mod lowered_plan;
mod nodes;
mod problem;
mod rank_lists;
mod splits;
mod transfer_bounds;

pub use cost_model::JobCosts;
pub use lowered_plan::LoweredPlan;
pub use nodes::PlannerNodes;
pub(crate) use problem::{check_times, data_parallel_bytes, single_gpu_memory_bytes};
pub use problem::{plan_problem, single_gpu_us};

use layer_engine::{Precision, Sgd};
use layer_graph::Split;

use crate::Error;
use crate::costs::Costs;
use crate::plan::{ExecutionPlan, PlannedLowering};
use crate::program::{LowerOptions, LoweredTraining, PartialBackpropagation, PartialDepth, Placement};

/// Maximum number of parts of a layer that a plan splits. More ones are small, and take long to
/// search.
const MAX_PARTS: usize = 64;

/// A network with its costs, its global batch, and the options with which its iterations are
/// lowered.
///
/// [`planning`](crate::planning) finds plans for it, and
/// [`simulate_plan`](crate::simulate::simulate_plan) runs them in virtual time.
#[derive(Debug, Clone)]
pub struct Job<'a> {
    costs: Costs<'a>,
    batch: usize,
    lowering: LowerOptions,
    /// The kinds of splits that layers may have, and the numbers of parts; empty if layers are
    /// divided by samples only.
    splits: (Vec<Split>, Vec<usize>),
}

impl<'a> Job<'a> {
    /// Creates a job. `batch` is the number of samples of the global batch. If the costs are those
    /// of `bf16`, so are its programs, whatever the options say.
    #[must_use]
    pub fn new(costs: Costs<'a>, batch: usize, lowering: LowerOptions) -> Self {
        let lowering = match costs.precision() {
            precision @ Precision::Bf16 => lowering.with_precision(precision),
            _ => lowering,
        };
        Self { costs, batch, lowering, splits: Default::default() }
    }

    /// Returns the job that a plan was made for: with its batch and lowering options, the given
    /// costs and the given optimiser.
    ///
    /// # Errors
    /// As [`ExecutionPlan::placement`], if the plan is for another network.
    pub fn of_plan(costs: Costs<'a>, plan: &ExecutionPlan, optimizer: Sgd) -> Result<Self, Error> {
        plan.placement(costs.network())?;
        let job = Self {
            costs,
            batch: plan.batch,
            lowering: plan.lowering.options(optimizer),
            splits: Default::default(),
        };
        Ok(job.with_splits_of(plan))
    }

    /// The costs of the layers and links.
    #[must_use]
    pub fn costs(&self) -> &Costs<'a> {
        &self.costs
    }

    /// Number of samples of the global batch.
    #[must_use]
    pub fn batch(&self) -> usize {
        self.batch
    }

    /// Returns this job with layers that a plan on up to `gpus` GPUs may split in the given ways:
    /// into as many parts as divide the number of GPUs, or powers of two, up to 64.
    #[must_use]
    pub fn with_splits(&self, kinds: &[Split], gpus: usize) -> Self {
        let is_count = |parts: &usize| gpus % parts == 0 || parts.is_power_of_two();
        let parts =
            if kinds.is_empty() { Vec::new() } else { (2..=gpus.min(MAX_PARTS)).filter(is_count).collect() };
        Self { splits: (kinds.to_vec(), parts), ..self.clone() }
    }

    /// Returns this job with layers that may be split as in a plan.
    pub(crate) fn with_splits_of(&self, plan: &ExecutionPlan) -> Self {
        let divisions = || plan.layers.iter().filter_map(|layer| layer.division);
        let mut kinds: Vec<Split> = divisions().map(|division| division.split).collect();
        let mut parts: Vec<usize> = divisions().map(|division| division.parts).collect();
        kinds.sort_unstable();
        kinds.dedup();
        parts.sort_unstable();
        parts.dedup();
        Self { splits: (kinds, parts), ..self.clone() }
    }

    /// Returns the mapping between the network's layers and the planner's nodes, with the splits
    /// that layers may have.
    #[must_use]
    pub fn nodes(&self) -> PlannerNodes<'a> {
        let nodes = PlannerNodes::new(self.costs.network());
        let (kinds, parts) = &self.splits;
        if parts.is_empty() { nodes } else { nodes.with_splits(kinds, parts, self.lowering.precision) }
    }

    /// Returns this job with `batch` samples in the global batch.
    pub(crate) fn with_batch(&self, batch: usize) -> Self {
        Self { batch, ..self.clone() }
    }

    /// The options with which training iterations are lowered.
    #[must_use]
    pub fn lowering(&self) -> &LowerOptions {
        &self.lowering
    }

    /// Combines a plan of this job with its programs, which are lowered on first use.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another network, batch or lowering. [`Error::Placement`]
    /// if its ranks or its order are not valid for the network. [`Error::Collectives`] if it has
    /// more GPUs than the links connect.
    pub fn lower(&self, plan: ExecutionPlan) -> Result<LoweredPlan<'a>, Error> {
        let placement = self.placement(&plan)?;
        Ok(LoweredPlan::new(self, plan, placement))
    }

    /// Returns the programs of a placement for this job's batch and lowering options. They are
    /// lowered on first use.
    pub(crate) fn training(&self, placement: Placement) -> LoweredTraining<'a> {
        LoweredTraining::new(self.costs.network(), placement, self.batch, self.lowering.clone())
    }

    /// Returns the ranks and the order of the layers of a plan, after checking that the plan is for
    /// this job.
    ///
    /// # Errors
    /// [`Error::Plan`] if the plan is for another network, batch or lowering.
    /// [`Error::Collectives`] if it has more GPUs than the links connect. Otherwise as
    /// [`ExecutionPlan::placement`].
    pub fn placement(&self, plan: &ExecutionPlan) -> Result<Placement, Error> {
        if plan.batch != self.batch {
            return Err(Error::Plan(format!(
                "it is for {} samples a batch, not {}: make another one",
                plan.batch, self.batch
            )));
        }
        let lowering = PlannedLowering::from(&self.lowering);
        if plan.lowering.bf16 != lowering.bf16 {
            return Err(Error::Plan(format!(
                "it is for layers in {}, not {}: give that precision, or make another plan",
                plan.lowering.precisions(),
                lowering.precisions()
            )));
        }
        if plan.lowering != lowering {
            return Err(Error::Plan("it has other lowering options than the job: make another plan".into()));
        }
        self.costs.link().check_ranks(plan.gpus)?;
        plan.placement(self.costs.network())
    }

    /// Returns this job with layers in another precision. The times of its costs stay the same.
    #[must_use]
    pub fn with_precision(&self, precision: Precision) -> Self {
        self.with_lowering(self.lowering.clone().with_precision(precision))
    }

    /// Returns this job with the given lowering options.
    pub(crate) fn with_lowering(&self, lowering: LowerOptions) -> Self {
        Self { lowering, ..self.clone() }
    }

    /// Returns this job with one micro-batch, without activation checkpoints and without partial
    /// backpropagation.
    pub(crate) fn whole_batch(&self) -> Self {
        let (checkpoints, partial) = (Vec::new(), None);
        self.with_lowering(LowerOptions { micro_batches: 1, checkpoints, partial, ..self.lowering.clone() })
    }

    /// Returns this job with [partial backpropagation](PartialBackpropagation) in `parts` parts of
    /// the batch. The depths of the roles divide the network evenly: by the backward time of the
    /// whole batch on one GPU if `by_time`, and otherwise by the number of layers with parameters.
    ///
    /// # Errors
    /// [`Error::Setting`] for fewer than two parts. [`Error::Profile`] if the profile lacks a time.
    pub fn with_partial(&self, parts: usize, by_time: bool) -> Result<Self, Error> {
        let network = self.costs.network();
        let mut times = vec![0; network.len()];
        for (id, _) in network.computing_layers().filter(|_| by_time) {
            let backward = self.costs.layer_time(id, self.batch)?.backward;
            times[id.index()] = u64::try_from(backward.as_nanos()).unwrap_or(u64::MAX);
        }
        let depth = if by_time { PartialDepth::Time(&times) } else { PartialDepth::Layers };
        let partial = Some(PartialBackpropagation::new(network, parts, depth)?);
        Ok(self.with_lowering(LowerOptions { partial, ..self.lowering.clone() }))
    }

    /// Returns the number of samples of a micro-batch, over all ranks.
    ///
    /// # Errors
    /// [`Error::Setting`] if the number of micro-batches does not divide the batch: the planner has
    /// one cost for all of them.
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

    /// Checks that backpropagation is not partial, for callers that do not support it.
    ///
    /// # Errors
    /// [`Error::Setting`] with partial backpropagation.
    pub(crate) fn check_full_backpropagation(&self) -> Result<(), Error> {
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

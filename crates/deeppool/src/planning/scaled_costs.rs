//! A cost model with all times multiplied by a factor.

use burst_planner::{CostModel, NodeId, ShardSize, SplitCosts, StepTimes, TensorLayout};

use crate::job::JobCosts;

/// A cost model with the times of all steps multiplied by one factor, and those of all collectives
/// by another.
pub(super) struct ScaledCosts<'a> {
    /// The cost model that is scaled.
    pub(super) costs: JobCosts<'a>,
    /// Factor of the times of forward, backward and update steps.
    pub(super) steps: f64,
    /// Factor of the times of redistributions and all-reduces.
    pub(super) collectives: f64,
}

impl CostModel for ScaledCosts<'_> {
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        self.costs.ranks_with_larger_shard(ranks)
    }

    fn replicas(&self) -> usize {
        self.costs.replicas()
    }

    fn compute(&self, node: NodeId, ranks: usize, share: ShardSize) -> Option<StepTimes> {
        Some(self.scaled(CostModel::compute(&self.costs, node, ranks, share)?))
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        CostModel::transfer(&self.costs, producer, from, to) * self.collectives
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.costs.all_reduce(bytes, ranks) * self.collectives
    }

    fn grouped_all_reduce(&self, bytes: u64, ranks: &[usize], groups: usize) -> f64 {
        self.costs.grouped_all_reduce(bytes, ranks, groups) * self.collectives
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        self.costs.splits().map(|_| self as &dyn SplitCosts)
    }
}

impl SplitCosts for ScaledCosts<'_> {
    fn compute(&self, node: NodeId, split: usize, ranks: usize, share: ShardSize) -> Option<StepTimes> {
        Some(self.scaled(SplitCosts::compute(&self.costs, node, split, ranks, share)?))
    }

    fn transfer(&self, producer: NodeId, from: TensorLayout<'_>, to: TensorLayout<'_>) -> f64 {
        SplitCosts::transfer(&self.costs, producer, from, to) * self.collectives
    }

    fn reduces_addends_in_place(&self) -> bool {
        self.costs.reduces_addends_in_place()
    }
}

impl ScaledCosts<'_> {
    fn scaled(&self, times: StepTimes) -> StepTimes {
        let StepTimes { forward_us, backward_us, update_us } = times;
        let [forward_us, backward_us, update_us] =
            [forward_us, backward_us, update_us].map(|time_us| time_us * self.steps);
        StepTimes { forward_us, backward_us, update_us }
    }
}

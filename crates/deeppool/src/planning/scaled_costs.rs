//! A cost model with all times multiplied by a factor.

use burst_planner::{CostModel, NodeId, ShardSize, StepTimes};

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
        let StepTimes { forward_us, backward_us, update_us } = self.costs.compute(node, ranks, share)?;
        let [forward_us, backward_us, update_us] =
            [forward_us, backward_us, update_us].map(|time_us| time_us * self.steps);
        Some(StepTimes { forward_us, backward_us, update_us })
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.costs.transfer(producer, from, to) * self.collectives
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.costs.all_reduce(bytes, ranks) * self.collectives
    }
}

//! What a plan would take if times were off.

use burst_planner::{Evaluator, NodeId, Share, StepTimes, TrainingCosts};

use super::{Job, JobCosts};
use crate::Error;
use crate::plan::ExecutionPlan;

/// Costs whose times are all longer or shorter by a factor, those of steps and those of collectives.
struct Scaled<'a> {
    costs: JobCosts<'a>,
    steps: f64,
    collectives: f64,
}

impl TrainingCosts for Scaled<'_> {
    fn larger_shares(&self, ranks: usize) -> usize {
        self.costs.larger_shares(ranks)
    }

    fn replicas(&self) -> usize {
        self.costs.replicas()
    }

    fn compute(&self, node: NodeId, ranks: usize, share: Share) -> Option<StepTimes> {
        let StepTimes { forward_us, backward_us, update_us } = self.costs.compute(node, ranks, share)?;
        let [forward_us, backward_us, update_us] =
            [forward_us, backward_us, update_us].map(|time_us| time_us * self.steps);
        Some(StepTimes { forward_us, backward_us, update_us })
    }

    fn transfer(&self, producer: NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.costs.transfer(producer, from, to) * self.collectives
    }

    fn reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.costs.reduce(bytes, ranks) * self.collectives
    }
}

impl Job<'_> {
    /// How long a plan's iteration would take, microseconds, if all steps took `layers` times as long as they are said to, and all
    /// collectives `links` times.
    ///
    /// # Errors
    /// When the plan is of another job, or the profile lacks a time.
    pub fn iteration_us_if(&self, plan: &ExecutionPlan, layers: f64, links: f64) -> Result<f64, Error> {
        let (problem, arrangement) = self.arranged(plan)?;
        let costs = Scaled { costs: self.training_costs(), steps: layers, collectives: links };
        Ok(Evaluator::new(&problem, costs)?.evaluate(&arrangement)?.iteration_us)
    }
}

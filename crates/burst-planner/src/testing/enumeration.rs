//! The optimum over all arrangements on ascending lists of ranks.

use super::problems::next_in_order;
use crate::{Arrangement, CostModel, Error, Evaluator, NodeId, Plan, PlanProblem, Result, ShardSize};

/// The Pareto-optimal arrangements of a small problem in iteration time and GPU time.
#[derive(Debug, Clone)]
pub struct Enumeration {
    /// Pareto-optimal plans, in ascending order of iteration time and descending order of GPU time.
    pub plans: Vec<Plan>,
    /// Time of an iteration on one GPU, microseconds.
    pub single_gpu_us: f64,
    /// Number of evaluated arrangements.
    pub evaluations: u64,
}

impl Enumeration {
    /// Returns the fastest plan whose amplification is at most `limit`, with a relative tolerance
    /// of 1e-9; `None` if there is none.
    #[must_use]
    pub fn fastest_within(&self, limit: f64) -> Option<&Plan> {
        let budget_us = limit * self.single_gpu_us * (1.0 + 1e-9);
        self.plans.iter().find(|point| point.time.gpu_time_us <= budget_us)
    }
}

/// Evaluates every arrangement on ascending lists of ranks: all sets with the nodes' GPU counts,
/// with each of the nodes' splits and without, and all orders. Lists in other orders are not tried,
/// although they can be faster: ranks then have other samples, and perhaps the smaller shard. About
/// a second for 6 nodes on 3 GPUs or 5 nodes on 4, without splits; exponential in both.
///
/// Arrangements above the memory limit are left out. Two kinds of redundant ones are, too. Costs do
/// not depend on which ranks are used: unless parameters are shared, a node uses the first of the
/// ranks that run the same earlier nodes. And sets of ranks whose computing takes longer than a
/// known arrangement are not tried in every order.
///
/// # Errors
/// Those of [`Evaluator::new`] and [`Evaluator::single_gpu_us`].
pub fn best_by_enumeration(problem: &PlanProblem, costs: &dyn CostModel) -> Result<Enumeration> {
    let evaluator = Evaluator::new(problem, costs)?;
    let single_gpu_us = evaluator.single_gpu_us()?;
    let mut orders = Vec::new();
    add_orders(problem, &mut Vec::new(), &mut orders);
    let found = Enumeration { plans: Vec::new(), single_gpu_us, evaluations: 0 };
    let mut all = All { problem, costs, evaluator, orders, found };
    // With shared parameters, the first rank determines which gradients are reduced together.
    let shares = problem.nodes.iter().any(|node| node.parameters_of.is_some());
    let alike = if shares {
        (0..problem.gpus).map(|rank| vec![rank]).collect()
    } else {
        vec![(0..problem.gpus).collect()]
    };
    all.place(&mut Vec::new(), &alike)?;
    Ok(all.found)
}

fn add_orders(problem: &PlanProblem, begun: &mut Vec<usize>, orders: &mut Vec<Vec<usize>>) {
    if begun.len() == problem.nodes.len() {
        orders.push(begun.clone());
    }
    for node in next_in_order(problem, begun) {
        begun.push(node);
        add_orders(problem, begun, orders);
        begun.pop();
    }
}

/// Ranks and split of a node.
type Placed = (Vec<usize>, Option<usize>);

struct All<'a> {
    problem: &'a PlanProblem,
    costs: &'a dyn CostModel,
    evaluator: Evaluator<'a>,
    orders: Vec<Vec<usize>>,
    found: Enumeration,
}

impl All<'_> {
    /// Places the remaining nodes in all ways. `alike` has the ranks that the placed nodes treat
    /// alike.
    fn place(&mut self, placed: &mut Vec<Placed>, alike: &[Vec<usize>]) -> Result<()> {
        let Some(node) = self.problem.nodes.get(placed.len()) else { return self.evaluate(placed) };
        let mut takes = vec![0; alike.len()];
        loop {
            // The next combination, in odometer order.
            let Some(wheel) = (0..alike.len()).find(|&wheel| takes[wheel] < alike[wheel].len()) else {
                return Ok(());
            };
            takes[wheel] += 1;
            takes[..wheel].fill(0);
            let count: usize = takes.iter().sum();
            let can_run = |split: &Option<usize>| {
                let parts = split.map_or(1, |split| node.splits[split].parts);
                count % parts == 0 && node.gpu_counts.contains(&(count / parts))
            };
            let splits = std::iter::once(None).chain((0..node.splits.len()).map(Some));
            let splits: Vec<Option<usize>> = splits.filter(can_run).collect();
            if splits.is_empty() {
                continue;
            }
            let parts = || alike.iter().zip(&takes);
            let mut ranks: Vec<usize> = parts().flat_map(|(ranks, &take)| &ranks[..take]).copied().collect();
            ranks.sort_unstable();
            let halves = parts().flat_map(|(ranks, &take)| [ranks[..take].to_vec(), ranks[take..].to_vec()]);
            let alike: Vec<Vec<usize>> = halves.filter(|ranks| !ranks.is_empty()).collect();
            for split in splits {
                placed.push((ranks.clone(), split));
                self.place(placed, &alike)?;
                placed.pop();
            }
        }
    }

    fn evaluate(&mut self, placed: &[Placed]) -> Result<()> {
        let mut computing = vec![0.0; self.problem.gpus];
        for (node, (ranks, split)) in placed.iter().enumerate() {
            let (id, count, larger) = (NodeId(node), ranks.len(), ShardSize::Larger);
            let steps = match *split {
                None => self.costs.compute(id, count, larger),
                Some(split) => self.costs.splits().and_then(|costs| costs.compute(id, split, count, larger)),
            };
            // A node cannot run with every split on every count.
            let Some(steps) = steps else { return Ok(()) };
            for &rank in ranks {
                computing[rank] += steps.forward_us;
            }
        }
        let (longest, sum) = (computing.iter().copied().fold(0.0, f64::max), computing.iter().sum::<f64>());
        let is_beaten = |point: &Plan| point.time.iteration_us <= longest && point.time.gpu_time_us <= sum;
        if self.found.plans.iter().any(is_beaten) {
            return Ok(());
        }
        for order in &self.orders {
            let (ranks, splits) = placed.iter().cloned().unzip();
            let arrangement = Arrangement { ranks, splits, order: order.clone() };
            if arrangement.validate(self.problem).is_err() {
                // Nodes that share parameters are split in different ways.
                return Ok(());
            }
            if matches!(self.evaluator.check_memory(&arrangement), Err(Error::MemoryExceeded { .. })) {
                continue;
            }
            let time = self.evaluator.evaluate(&arrangement)?;
            self.found.evaluations += 1;
            let plans = &mut self.found.plans;
            let is_as_good = |point: &Plan| {
                point.time.iteration_us <= time.iteration_us && point.time.gpu_time_us <= time.gpu_time_us
            };
            if !plans.iter().any(is_as_good) {
                plans.retain(|point| {
                    point.time.iteration_us < time.iteration_us || point.time.gpu_time_us < time.gpu_time_us
                });
                plans.push(Plan { time, arrangement });
            }
        }
        self.found.plans.sort_by(|a, b| a.time.iteration_us.total_cmp(&b.time.iteration_us));
        Ok(())
    }
}

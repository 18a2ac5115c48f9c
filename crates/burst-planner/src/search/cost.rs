//! What a partial choice costs, and prices that weigh the criteria against each other.

use crate::{Edge, NodeOption, PlanProblem};

/// The criteria of a partial choice; they add up.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cost {
    pub(crate) time: f64,
    pub(crate) gpu: f64,
    /// Bytes on rank 0. Zero throughout when no limit can bind.
    pub(crate) memory: f64,
}

impl Cost {
    pub(crate) const ZERO: Self = Self { time: 0.0, gpu: 0.0, memory: 0.0 };

    pub(crate) fn of_option(option: &NodeOption, weights: Weights, with_memory: bool) -> Self {
        let all_reduce = weights.all_reduce * option.all_reduce_us;
        let time = option.time_us + all_reduce - weights.backward * option.backward_part_us();
        let memory = if with_memory { option.memory_bytes.unwrap_or(0) as f64 } else { 0.0 };
        Self { time, gpu: option.gpus as f64 * option.total_us(), memory }
    }

    pub(crate) fn of_transfer(problem: &PlanProblem, edge: &Edge, from: usize, to: usize) -> Self {
        let gpus = |node: usize, option: usize| problem.nodes[node].options[option].gpus;
        let time = edge.transfer_us[from][to];
        Self { time, gpu: gpus(edge.from.0, from).max(gpus(edge.to.0, to)) as f64 * time, memory: 0.0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { time: self.time + other.time, gpu: self.gpu + other.gpu, memory: self.memory + other.memory }
    }
}

/// How much of a node's all-reduce counts as time, and how much of its backward pass is taken off again because all-reduces
/// hide behind it. From 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Weights {
    pub(crate) all_reduce: f64,
    pub(crate) backward: f64,
}

impl Weights {
    /// The additive model: nothing hides.
    pub(crate) const ADDITIVE: Self = Self { all_reduce: 1.0, backward: 0.0 };
}

/// What a unit of each criterion is worth; never negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Prices {
    pub(crate) time: f64,
    pub(crate) gpu: f64,
    pub(crate) memory: f64,
}

impl Prices {
    pub(crate) const TIME: Self = Self { time: 1.0, gpu: 0.0, memory: 0.0 };
    pub(crate) const GPU: Self = Self { time: 0.0, gpu: 1.0, memory: 0.0 };
    pub(crate) const MEMORY: Self = Self { time: 0.0, gpu: 0.0, memory: 1.0 };

    pub(crate) fn of(self, cost: Cost) -> f64 {
        self.time * cost.time + self.gpu * cost.gpu + self.memory * cost.memory
    }
}

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
    pub(crate) fn of_option(option: &NodeOption, with_memory: bool) -> Self {
        let time = option.total_us();
        let memory = if with_memory { option.memory_bytes.unwrap_or(0) as f64 } else { 0.0 };
        Self { time, gpu: option.gpus as f64 * time, memory }
    }

    pub(crate) fn of_transfer(problem: &PlanProblem, edge: &Edge, from: usize, to: usize) -> Self {
        let gpus = |node: usize, option: usize| problem.nodes[node].options[option].gpus;
        let time = edge.transfer_us[from][to];
        Self { time, gpu: gpus(edge.from, from).max(gpus(edge.to, to)) as f64 * time, memory: 0.0 }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        Self { time: self.time + other.time, gpu: self.gpu + other.gpu, memory: self.memory + other.memory }
    }
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

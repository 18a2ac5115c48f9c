//! Placement problems from planning problems.

use super::DevicePlacement;
use super::problem::{Operation, PlacementProblem};
use crate::{Arrangement, CostModel, Error, NodeId, PlanProblem, Result, ShardSize};

impl PlacementProblem {
    /// Builds the problem of placing each node of a planning problem on one of `devices` GPUs.
    /// Transfers take their minimum between any two GPUs, and updates are left out, so the
    /// placement's lower bound also bounds every arrangement with one GPU per node. In the built
    /// problem, a node that uses another node's parameters starts after that node. In an
    /// arrangement this need not be so on another GPU.
    ///
    /// # Errors
    /// Those of [`PlanProblem::validate`], and [`Error::NoTimes`] for a node without times for one
    /// GPU.
    pub fn from_problem(problem: &PlanProblem, costs: &dyn CostModel, devices: usize) -> Result<Self> {
        problem.validate()?;
        let structure = crate::problem::ProblemGraph::new(problem)?;
        let mut placement = Self::new(devices);
        for (index, node) in problem.nodes.iter().enumerate() {
            let steps = costs.compute(NodeId(index), 1, ShardSize::Larger);
            let steps = steps.ok_or_else(|| Error::NoTimes { node: node.name.clone(), gpus: 1 })?;
            let backward_us = if structure.needs_gradient[index] { steps.backward_us } else { 0.0 };
            placement.add(Operation::new(node.name.clone(), steps.forward_us, backward_us));
        }
        for &(from, to) in &problem.edges {
            let forward_us = crate::costs::bounds_of(costs).min_transfer(from, 1, 1);
            let backward_us = if structure.needs_gradient[from.0] { forward_us } else { 0.0 };
            placement.connect(from, to, forward_us, backward_us);
        }
        for (index, node) in problem.nodes.iter().enumerate() {
            let user = NodeId(index);
            if let Some(owner) = node.parameters_of {
                if !problem.edges.contains(&(owner, user)) {
                    placement.connect(owner, user, 0.0, 0.0);
                }
            }
        }
        Ok(placement)
    }
}

impl DevicePlacement {
    /// Returns the arrangement of each node on one rank, the index of its device.
    #[must_use]
    pub fn arrangement(&self) -> Arrangement {
        let ranks = self.devices.iter().map(|&device| vec![device]).collect();
        Arrangement::new(ranks, self.order.clone())
    }
}

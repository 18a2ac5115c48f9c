//! Parts of the graph that moves treat as a unit. A *move* is a random change of an arrangement.
//! Nodes are given by their indices in the problem.

use super::series_parallel::{ParallelRegion, regions};
use crate::NodeId;
use crate::problem::{PlanProblem, ProblemGraph};

/// Parts of the graph that moves treat as a unit.
pub(super) struct GraphParts {
    /// Regions between a fork and a join with parallel branches, each one before those nested in
    /// it.
    pub(super) parallels: Vec<ParallelRegion>,
    /// By node: the nodes that directly precede it in every order.
    pub(super) before: Vec<Vec<usize>>,
    /// By node: the nodes that it directly precedes in every order.
    pub(super) after: Vec<Vec<usize>>,
}

impl GraphParts {
    /// Finds the parts of the graph of `problem`.
    pub(super) fn new(problem: &PlanProblem, structure: &ProblemGraph) -> Self {
        let count = problem.nodes.len();
        let edges = problem.edges.iter().map(|&(NodeId(from), NodeId(to))| (from, to));
        let parallels = regions(count, edges);
        let before: Vec<Vec<usize>> =
            (0..count).map(|node| structure.comes_before(problem, node).collect()).collect();
        let mut after = vec![Vec::new(); count];
        for (node, before) in before.iter().enumerate() {
            for &earlier in before {
                after[earlier].push(node);
            }
        }
        Self { parallels, before, after }
    }
}

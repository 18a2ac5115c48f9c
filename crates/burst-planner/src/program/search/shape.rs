//! Parts of the graph that are moved together.

use super::super::problem::{Structure, TrainingProblem};
use crate::NodeId;
use crate::waves::{Link, reduce};

/// Branches between a fork and a join, and all nodes between them.
pub(super) struct Parallel {
    /// By branch that has nodes: all of them, those of nested regions included, ascending.
    pub(super) branches: Vec<Vec<usize>>,
}

/// What of the graph the search moves at once.
pub(super) struct Shape {
    pub(super) parallels: Vec<Parallel>,
    /// By node: what comes directly before and after it in every order.
    pub(super) before: Vec<Vec<usize>>,
    pub(super) after: Vec<Vec<usize>>,
}

impl Shape {
    pub(super) fn new(problem: &TrainingProblem, structure: &Structure) -> Self {
        let count = problem.nodes.len();
        let regions = reduce(count, problem.edges.iter().map(|&(NodeId(from), NodeId(to))| (from, to)));
        let mut nodes_of: Vec<Vec<usize>> = vec![Vec::new(); regions.len()];
        let mut parallels = Vec::new();
        // Regions come before those nested in them.
        for (index, region) in regions.iter().enumerate().rev() {
            let mut branches = Vec::new();
            for branch in &region.branches {
                let mut nodes: Vec<usize> = branch.nodes.iter().map(|node| node.0).collect();
                for link in &branch.links {
                    if let Link::Region(inner) = *link {
                        nodes.extend(&nodes_of[inner]);
                    }
                }
                nodes.sort_unstable();
                nodes_of[index].extend(&nodes);
                branches.push(nodes);
            }
            branches.retain(|nodes| !nodes.is_empty());
            if !branches.is_empty() {
                parallels.push(Parallel { branches });
            }
        }
        parallels.reverse();
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

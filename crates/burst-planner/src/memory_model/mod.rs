//! Memory of an arrangement over an iteration, by rank class: a sweep over the lifetimes of all
//! buffers.
//!
//! A *group* is a list of ranks, a *slot* the index of a group among those of the arrangement. A
//! *class* is a set of ranks that do identical work. Nodes are given by their indices in the
//! problem. A *position* is a point of time in a micro-batch: the steps of the forward pass in
//! order, then those of the backward pass, then the optimizer. A buffer is alive from its first to
//! its last use, and buffers that are not alive at the same time share memory.

mod positions;
mod sweep;

use crate::cost_cache::CostCache;
use crate::costs::{NodeMemory, ShardSize};
use crate::groups::{Class, Classes, Slot};
use crate::problem::ProblemGraph;
use crate::recompute::Recomputation;
use crate::splits::NodeTensors;
use crate::{Node, NodeSplit, PlanProblem};
use positions::{Position, Positions};
use sweep::Sweep;

/// Size of the norm of all gradients, bytes.
const NORM_BYTES: u64 = 4;

/// Memory of an arrangement: the problem with the groups of its nodes.
pub(crate) struct MemoryModel<'a> {
    /// The problem.
    pub(crate) problem: &'a PlanProblem,
    /// Graph of the problem.
    pub(crate) structure: &'a ProblemGraph,
    /// Cached memory of nodes on each group.
    pub(crate) cache: &'a CostCache<'a>,
    /// Rank classes of the arrangement.
    pub(crate) classes: &'a Classes,
    /// By node: the slot of the list of ranks that it runs on.
    pub(crate) groups: &'a [Slot],
    /// By node: the slot of the list of ranks that hold the parameters that it owns; the slot of
    /// its own list if it owns none.
    pub(crate) parameter_groups: &'a [Slot],
    /// Layouts and sizes of the nodes' tensors.
    pub(crate) tensors: NodeTensors<'a>,
    /// Slot of the list of all ranks that hold parameters, if the norm of all gradients is needed.
    pub(crate) all_parameters: Option<Slot>,
    /// Nodes whose forward step is repeated in the backward pass.
    pub(crate) recomputation: &'a Recomputation,
    /// Indices of all nodes in the order of the forward pass.
    pub(crate) order: &'a [u32],
}

/// Returns an upper bound of the memory of any rank, bytes: the memory of a rank that has all
/// nodes, with all copies, all alive at the same time. `maximum` has for each node the maximum of
/// each of its memory sizes on a rank. O(nodes).
pub(crate) fn max_held_bytes(problem: &PlanProblem, structure: &ProblemGraph, maximum: &[NodeMemory]) -> u64 {
    let parts = problem.nodes.iter().flat_map(|node| &node.splits).map(|split| split.parts).max();
    let of_node = |(node, memory): (usize, &NodeMemory)| {
        let consumers = structure.consumers[node].len() as u64;
        // The output and its gradient, and for each list of consumers a copy, the gradient of each
        // consumer, their sum there, and that gradient here. The addends of a copy and of a
        // gradient are received, too.
        let outputs = 2 + (4 + 2 * parts.unwrap_or(0) as u64) * consumers;
        let Node { parameters_of, splits, .. } = &problem.nodes[node];
        let owner = parameters_of.map_or(node, |owner| owner.0);
        let maximum = |whole: u64, of_split: fn(&NodeSplit) -> u64, splits: &[NodeSplit]| {
            splits.iter().map(of_split).fold(whole, u64::max)
        };
        let state_bytes = maximum(problem.nodes[node].state_bytes, |split| split.state_bytes, splits);
        let Node { gradient_bytes, splits, .. } = &problem.nodes[owner];
        let gradient_bytes = maximum(*gradient_bytes, |split| split.gradient_bytes, splits);
        // The gradient, the sum of several users' gradients, and the sum over micro-batches.
        let gradients = if problem.micro_batches.get() > 1 { 3 } else { 2 };
        [
            memory.held_bytes,
            memory.samples_bytes,
            memory.saved_bytes,
            memory.step_bytes,
            memory.output_bytes.saturating_mul(outputs),
            state_bytes,
            gradient_bytes.saturating_mul(gradients),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    };
    // Each node without consumers has metrics, and their sums over micro-batches.
    let metrics_bytes = problem.gradients.metrics_bytes.saturating_mul(2 * problem.nodes.len() as u64);
    let others = NORM_BYTES.saturating_add(metrics_bytes);
    maximum.iter().enumerate().map(of_node).fold(others, u64::saturating_add)
}

/// A part of the memory of a class: an interval of positions, both ends included, and the node that
/// it is for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held {
    /// The class.
    pub(crate) class: Class,
    /// The node.
    pub(crate) node: usize,
    /// Size, bytes.
    pub(crate) bytes: u64,
    /// The first and the last position at which it is alive.
    pub(crate) alive: [Position; 2],
}

/// The memory of each class, and when it is largest.
pub(crate) struct Peaks {
    /// By class: maximum memory, bytes.
    pub(crate) bytes: Vec<u64>,
    /// By class: the first position at which the memory is largest.
    pub(crate) positions: Vec<Position>,
}

impl MemoryModel<'_> {
    /// Returns the last position at which a node reads its inputs.
    fn last_read(&self, node: usize, positions: &Positions) -> Position {
        if self.structure.needs_gradient[node] && self.problem.nodes[node].backward_reads.input {
            positions.backward[node]
        } else {
            positions.repeated[node].unwrap_or(positions.forward(node))
        }
    }

    /// Returns the maximum memory of each class over all positions. O((nodes + edges) x classes).
    pub(crate) fn peaks(&self) -> Peaks {
        let classes = self.classes.len();
        let mut changes: Vec<i128> = Vec::new();
        self.for_each_buffer(|Held { class, bytes, alive: [from, to], .. }| {
            let end = (to as usize + 2) * classes;
            if changes.len() < end {
                changes.resize(end, 0);
            }
            changes[from as usize * classes + usize::from(class)] += i128::from(bytes);
            changes[(to as usize + 1) * classes + usize::from(class)] -= i128::from(bytes);
        });
        let (mut now, mut max) = (vec![0_i128; classes], vec![0_i128; classes]);
        let mut positions = vec![0; classes];
        if classes > 0 {
            for (position, changes) in changes.chunks_exact(classes).enumerate() {
                for (class, change) in changes.iter().enumerate() {
                    now[class] += change;
                    if now[class] > max[class] {
                        (max[class], positions[class]) = (now[class], position as Position);
                    }
                }
            }
        }
        let bytes = max.into_iter().map(|bytes| u64::try_from(bytes).unwrap_or(u64::MAX)).collect();
        Peaks { bytes, positions }
    }

    /// Calls `add` for every buffer, with the positions at which it is alive. O((nodes + edges) x
    /// classes).
    pub(crate) fn for_each_buffer(&self, add: impl FnMut(Held)) {
        let sweep = Sweep {
            model: self,
            positions: &Positions::new(self),
            // Nothing has been computed yet.
            received_from: vec![0; self.classes.len()],
            add,
        };
        sweep.run();
    }

    fn memory(&self, node: usize, group: Slot, shard_size: ShardSize) -> &NodeMemory {
        &self.cache.memory(node, group)[shard_size as usize]
    }

    /// Returns whether a group has the ranks of a class.
    fn is_in(&self, group: Slot, class: Class) -> bool {
        self.classes.members(group).iter().any(|member| member.class == class)
    }
}

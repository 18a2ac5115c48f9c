//! Activation recomputation: which outputs are kept, and which are recomputed in the backward pass.
//!
//! A checkpoint ends a *segment* of the nodes in topological order; the nodes after the last one
//! are a segment. A node is *local* if all its consumers are in its segment and read its
//! output in the layout in which it is computed, and it is not marked as kept.

use crate::problem::{PlanProblem, ProblemGraph};
use crate::splits::NodeTensors;

/// The nodes of an arrangement whose outputs are recomputed. The [crate's
/// page](crate#the-time-of-a-plan) has the rules.
#[derive(Debug, Default)]
pub(crate) struct Recomputation {
    /// By node: the number of checkpoints before it; empty without checkpoints.
    segment: Vec<u32>,
    /// By node: whether its forward step is repeated in the backward pass.
    is_recomputed: Vec<bool>,
    is_checkpoint: Vec<bool>,
}

impl Recomputation {
    /// Changes to another arrangement. `tensors` has the layouts of the outputs of nodes and of
    /// their inputs, `order` has the indices of all nodes in the order of the forward pass. O(nodes
    /// + edges), or O(1) without checkpoints.
    pub(crate) fn set(
        &mut self,
        problem: &PlanProblem,
        structure: &ProblemGraph,
        tensors: NodeTensors<'_>,
        order: &[u32],
    ) {
        if problem.checkpoints.is_empty() {
            return;
        }
        let nodes = problem.nodes.len();
        self.segment.resize(nodes, 0);
        for flags in [&mut self.is_recomputed, &mut self.is_checkpoint] {
            flags.clear();
            flags.resize(nodes, false);
        }
        for &node in &problem.checkpoints {
            self.is_checkpoint[node.0] = true;
        }
        let mut last = 0;
        for &node in order {
            self.segment[node as usize] = last;
            last += u32::from(self.is_checkpoint[node as usize]);
        }
        for &node in order.iter().rev() {
            let node = node as usize;
            let consumers = &structure.consumers[node];
            let is_beside = |&consumer: &usize| {
                self.segment[consumer] == self.segment[node]
                    && tensors.inputs[consumer] == tensors.outputs[node]
            };
            let is_local =
                !problem.nodes[node].is_kept && !consumers.is_empty() && consumers.iter().all(is_beside);
            let reads =
                |node: usize| structure.needs_gradient[node].then_some(problem.nodes[node].backward_reads);
            let is_needed = reads(node).is_some_and(|reads| reads.output || reads.saved)
                || consumers.iter().any(|&consumer| {
                    self.is_recomputed[consumer] || reads(consumer).is_some_and(|reads| reads.input)
                });
            self.is_recomputed[node] = is_local && is_needed && self.segment[node] < last;
        }
    }

    /// Returns the indices of the nodes that are recomputed before the backward step of the node
    /// `order[place]`, in order of their forward steps. Empty if that node is not a checkpoint.
    pub(crate) fn before_backward<'o>(
        &self,
        order: &'o [u32],
        place: usize,
    ) -> impl Iterator<Item = usize> + use<'_, 'o> {
        let last = order[place] as usize;
        let is_end = self.is_checkpoint.get(last).copied().unwrap_or(false);
        let is_here = move |node: &u32| self.segment[*node as usize] == self.segment[last];
        let count =
            if is_end { order[..=place].iter().rev().take_while(|node| is_here(node)).count() } else { 0 };
        let here = order[place + 1 - count..=place].iter().map(|&node| node as usize);
        here.filter(|&node| self.is_recomputed[node])
    }
}

impl ProblemGraph {
    /// Returns the nodes that can be checkpoints, in topological order: every other node comes
    /// before or after it, and at least one after it. O(nodes x (nodes + edges)).
    pub(crate) fn possible_checkpoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.order.iter().copied().filter(|&node| self.can_be_checkpoint(node))
    }

    /// Returns whether a node can be a checkpoint: it has a consumer, and every other node comes
    /// before or after it. O(nodes + edges).
    pub(crate) fn can_be_checkpoint(&self, node: usize) -> bool {
        let mut met = vec![false; self.order.len()];
        for next in [&self.producers, &self.consumers] {
            met[node] = false;
            let mut left = vec![node];
            while let Some(node) = left.pop() {
                if !std::mem::replace(&mut met[node], true) {
                    left.extend(&next[node]);
                }
            }
        }
        !self.consumers[node].is_empty() && met.into_iter().all(|met| met)
    }
}

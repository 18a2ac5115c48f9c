//! A coarser problem that is searched first: neighbouring nodes with little work are placed as one.
//! A *block* is such a sequence of nodes; a *stage* is a problem under search.

use super::stage::SearchStage;
use crate::costs::{CostBounds, CostModel, NodeMemory, ShardSize, StepTimes, bounds_of};
use crate::problem::{Node, PlanProblem, ProblemGraph};
use crate::{Arrangement, NodeId, Result};

/// Neighbours are joined up to this fraction of the time on one GPU.
const PART: f64 = 0.01;
/// Neighbours are joined up to this fraction of the gradients.
const GRADIENT_PART: f64 = 0.03;

/// A problem whose nodes are blocks of another problem's nodes: parts of chains that run one after
/// another on the same ranks.
pub(super) struct CoarseProblem {
    /// The problem whose nodes are the blocks.
    pub(super) problem: PlanProblem,
    /// By block: the indices of its nodes in order.
    pub(super) blocks: Vec<Vec<usize>>,
}

impl CoarseProblem {
    /// Joins the nodes of `problem` to blocks. `times_us` has by node the time of its steps on one
    /// GPU, microseconds. O(nodes + edges).
    pub(super) fn new(problem: &PlanProblem, structure: &ProblemGraph, times_us: &[f64]) -> Self {
        let max_us = PART * times_us.iter().sum::<f64>();
        let bytes = |node: usize| problem.nodes[node].gradient_bytes as f64;
        let max_bytes = GRADIENT_PART * (0..problem.nodes.len()).map(bytes).sum::<f64>();
        let mut blocks: Vec<Vec<usize>> = Vec::new();
        let mut block_of = vec![0; problem.nodes.len()];
        let mut block_us: Vec<f64> = Vec::new();
        for &node in &structure.order {
            let before = match structure.producers[node][..] {
                [only] if can_join(problem, structure, only, node) => Some(only),
                _ => None,
            };
            let joined = before.map(|before| block_of[before]);
            let joined = joined.filter(|&block| {
                let gradient: f64 = blocks[block].iter().map(|&before| bytes(before)).sum();
                block_us[block] + times_us[node] <= max_us && gradient + bytes(node) <= max_bytes
            });
            block_of[node] = joined.unwrap_or(blocks.len());
            if let Some(block) = joined {
                blocks[block].push(node);
                block_us[block] += times_us[node];
            } else {
                blocks.push(vec![node]);
                block_us.push(times_us[node]);
            }
        }
        let node = |block: &Vec<usize>| {
            let first = &problem.nodes[block[0]];
            Node {
                gradient_bytes: block.iter().map(|&node| problem.nodes[node].gradient_bytes).sum(),
                state_bytes: block.iter().map(|&node| problem.nodes[node].state_bytes).sum(),
                parameters_of: first.parameters_of.map(|NodeId(owner)| NodeId(block_of[owner])),
                synchronized: first.synchronized,
                is_kept: first.is_kept,
                ..Node::new(first.name.clone(), first.gpu_counts.iter().copied())
            }
        };
        let nodes = blocks.iter().map(node).collect();
        let between = |&(NodeId(from), NodeId(to)): &(NodeId, NodeId)| {
            (block_of[from] != block_of[to]).then_some((NodeId(block_of[from]), NodeId(block_of[to])))
        };
        let edges = problem.edges.iter().filter_map(between).collect();
        // A checkpoint is a block with no other node.
        let checkpoints = problem.checkpoints.iter().map(|&NodeId(node)| NodeId(block_of[node])).collect();
        let coarse = PlanProblem { nodes, edges, checkpoints, ..*problem };
        Self { problem: coarse, blocks }
    }

    /// Evaluates the arrangements in the archive of `blocks` that are new since the last call as
    /// arrangements of the nodes, in the stage `nodes`. Fails as an evaluation does.
    pub(super) fn expand_new(&self, blocks: &mut SearchStage<'_>, nodes: &mut SearchStage<'_>) -> Result<()> {
        for found in blocks.archive.take_new() {
            let arrangement = blocks.evaluator.arrangement(&found);
            let expanded = nodes.evaluator.numbered(&self.expand(&arrangement, nodes.node_count()))?;
            nodes.evaluate(&expanded)?;
        }
        Ok(())
    }

    /// Returns the arrangement of the nodes for one of the blocks.
    fn expand(&self, arrangement: &Arrangement, nodes: usize) -> Arrangement {
        let mut ranks = vec![Vec::new(); nodes];
        for (block, of_block) in self.blocks.iter().zip(&arrangement.ranks) {
            for &node in block {
                ranks[node].clone_from(of_block);
            }
        }
        let order = arrangement.order.iter().flat_map(|&block| self.blocks[block].iter().copied()).collect();
        Arrangement { ranks, order }
    }
}

/// Returns whether a node can be placed as one with its only producer: no collective is between
/// them, and neither shares parameters.
fn can_join(problem: &PlanProblem, structure: &ProblemGraph, before: usize, node: usize) -> bool {
    let is_plain = |node: usize| {
        let Node { parameters_of, synchronized, is_kept, .. } = &problem.nodes[node];
        parameters_of.is_none()
            && synchronized.is_none()
            && !is_kept
            && structure.users[node].len() < 2
            && !problem.checkpoints.contains(&NodeId(node))
    };
    structure.consumers[before].len() == 1
        && is_plain(before)
        && is_plain(node)
        && structure.needs_gradient[before] == structure.needs_gradient[node]
        && problem.nodes[before].gpu_counts == problem.nodes[node].gpu_counts
}

/// Cost model of blocks: step durations and memory are sums over the nodes of a block, and its
/// output is that of its last node.
pub(super) struct CoarseCosts<'c> {
    /// Cost model of the nodes.
    pub(super) costs: &'c dyn CostModel,
    /// By block: the indices of its nodes in order.
    pub(super) blocks: &'c [Vec<usize>],
}

impl CostModel for CoarseCosts<'_> {
    fn ranks_with_larger_shard(&self, ranks: usize) -> usize {
        self.costs.ranks_with_larger_shard(ranks)
    }

    fn replicas(&self) -> usize {
        self.costs.replicas()
    }

    fn compute(&self, NodeId(block): NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        self.blocks[block].iter().try_fold(StepTimes::default(), |sum, &node| {
            let steps = self.costs.compute(NodeId(node), ranks, shard_size)?;
            Some(StepTimes {
                forward_us: sum.forward_us + steps.forward_us,
                backward_us: sum.backward_us + steps.backward_us,
                update_us: sum.update_us + steps.update_us,
            })
        })
    }

    fn transfer(&self, NodeId(block): NodeId, from: &[usize], to: &[usize]) -> f64 {
        // The output of a block is that of its last node.
        self.blocks[block].last().map_or(0.0, |&last| self.costs.transfer(NodeId(last), from, to))
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.costs.all_reduce(bytes, ranks)
    }

    fn memory(&self, NodeId(block): NodeId, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        let of_nodes =
            self.blocks[block].iter().map(|&node| self.costs.memory(NodeId(node), ranks, shard_size));
        // The output of a block is that of its last node. With a recomputed block, the outputs of
        // the others and their gradients are saved.
        of_nodes.fold(NodeMemory::default(), |sum, memory| NodeMemory {
            held_bytes: sum.held_bytes.saturating_add(memory.held_bytes),
            samples_bytes: sum.samples_bytes.max(memory.samples_bytes),
            saved_bytes: [sum.saved_bytes, sum.output_bytes, sum.output_bytes, memory.saved_bytes]
                .into_iter()
                .fold(0, u64::saturating_add),
            output_bytes: memory.output_bytes,
        })
    }

    fn bounds(&self) -> Option<&dyn CostBounds> {
        Some(self)
    }
}

impl CostBounds for CoarseCosts<'_> {
    fn min_transfer(&self, NodeId(block): NodeId, from: usize, to: usize) -> f64 {
        self.blocks[block]
            .last()
            .map_or(0.0, |&last| bounds_of(self.costs).min_transfer(NodeId(last), from, to))
    }

    fn min_transfer_unnested(&self, NodeId(block): NodeId, from: usize, to: usize) -> f64 {
        self.blocks[block]
            .last()
            .map_or(0.0, |&last| bounds_of(self.costs).min_transfer_unnested(NodeId(last), from, to))
    }

    fn min_transfer_to_subset(
        &self,
        NodeId(block): NodeId,
        wide: usize,
        narrow: usize,
        larger: usize,
    ) -> f64 {
        let last = self.blocks[block].last();
        last.map_or(0.0, |&last| {
            bounds_of(self.costs).min_transfer_to_subset(NodeId(last), wide, narrow, larger)
        })
    }

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        bounds_of(self.costs).min_all_reduce(bytes, ranks)
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        bounds_of(self.costs).min_marginal_all_reduce(bytes, ranks)
    }
}

//! A coarser problem that is searched first: neighbouring nodes with little work are placed as one.
//! A *block* is such a sequence of nodes; a *stage* is a problem under search.

use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::stage::SearchStage;
use crate::costs::{CostBounds, CostModel, NodeMemory, ShardSize, StepTimes, bounds_of};
use crate::evaluator::NumberedArrangement;
use crate::problem::{Node, PlanProblem, ProblemGraph};
use crate::{BackwardReads, NodeId, Result};

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
    /// Indices of all nodes in the topological order of the blocks.
    order: Rc<[u32]>,
}

impl CoarseProblem {
    /// Joins the nodes of `problem` to blocks. `times_us` has by node the time of its steps on one
    /// GPU, microseconds. O(nodes + edges).
    ///
    /// A *section* is a sequence of nodes up to one that all paths contain, without earlier such
    /// nodes. A small section, such as a residual connection, is joined as a whole; the nodes of
    /// other sections are joined to their only producers. So repeated blocks of a deep network,
    /// which are small, are placed as one.
    pub(super) fn new(
        problem: &PlanProblem,
        structure: &ProblemGraph,
        times_us: &[f64],
        is_joined: bool,
    ) -> Result<Self> {
        let bytes = |node: usize| problem.nodes[node].gradient_bytes as f64;
        let (part, gradient_part) = if is_joined { (PART, GRADIENT_PART) } else { (0.0, 0.0) };
        let maximum = (
            part * times_us.iter().sum::<f64>(),
            gradient_part * (0..problem.nodes.len()).map(bytes).sum::<f64>(),
        );
        let mut blocks = Blocks { nodes: Vec::new(), of: vec![0; times_us.len()], sums: Vec::new(), maximum };
        let is_section_end = structure.articulations();
        let mut entry: Option<usize> = None;
        let places: Vec<usize> = (0..times_us.len()).collect();
        for section in places.chunk_by(|&place, _| !is_section_end[place]) {
            let section = &structure.order[section[0]..section[0] + section.len()];
            let sum = |values: &dyn Fn(usize) -> f64| section.iter().map(|&node| values(node)).sum::<f64>();
            let sums = (sum(&|node| times_us[node]), sum(&bytes));
            let is_joined = |before: usize| {
                section.len() > 1
                    && sums.0 <= maximum.0
                    && sums.1 <= maximum.1
                    && is_plain(problem, structure, before)
                    && section.iter().all(|&node| are_alike(problem, structure, before, node))
            };
            if let Some(before) = entry.filter(|&before| is_joined(before)) {
                blocks.add(Some(before), section, sums);
            } else {
                for &node in section {
                    let before = match structure.producers[node][..] {
                        [only] if structure.consumers[only].len() == 1 => Some(only),
                        _ => None,
                    };
                    let before = before.filter(|&before| {
                        is_plain(problem, structure, before) && are_alike(problem, structure, before, node)
                    });
                    blocks.add(before, &[node], (times_us[node], bytes(node)));
                }
            }
            entry = section.last().copied();
        }
        let Blocks { nodes: blocks, of: block_of, .. } = blocks;
        let node = |block: &Vec<usize>| {
            let first = &problem.nodes[block[0]];
            Node {
                gradient_bytes: block.iter().map(|&node| problem.nodes[node].gradient_bytes).sum(),
                state_bytes: block.iter().map(|&node| problem.nodes[node].state_bytes).sum(),
                parameters_of: first.parameters_of.map(|NodeId(owner)| NodeId(block_of[owner])),
                synchronized: first.synchronized,
                is_kept: first.is_kept,
                backward_reads: backward_reads(problem, block),
                ..Node::new(first.name.clone(), first.gpu_counts.iter().copied())
            }
        };
        let nodes = blocks.iter().map(node).collect();
        let between = |&(NodeId(from), NodeId(to)): &(NodeId, NodeId)| {
            (block_of[from] != block_of[to]).then_some((NodeId(block_of[from]), NodeId(block_of[to])))
        };
        let mut edges: Vec<(NodeId, NodeId)> = problem.edges.iter().filter_map(between).collect();
        let mut seen = FxHashSet::default();
        edges.retain(|&(NodeId(from), NodeId(to))| seen.insert((from, to)));
        // A checkpoint is a block with no other node.
        let checkpoints = problem.checkpoints.iter().map(|&NodeId(node)| NodeId(block_of[node])).collect();
        let coarse = PlanProblem { nodes, edges, checkpoints, ..*problem };
        let mut coarse = Self { problem: coarse, blocks, order: Rc::new([]) };
        let own = ProblemGraph::new(&coarse.problem)?.order;
        coarse.order = coarse.order_of_nodes(&own.iter().map(|&block| block as u32).collect::<Vec<_>>());
        Ok(coarse)
    }

    /// Evaluates the arrangements in the archive of `blocks` that are new since the last call as
    /// arrangements of the nodes, in the stage `nodes`. Fails as an evaluation does.
    pub(super) fn expand_new(&self, blocks: &mut SearchStage<'_>, nodes: &mut SearchStage<'_>) -> Result<()> {
        for found in blocks.archive.take_new() {
            let mut groups = vec![0; nodes.node_count()];
            for (block, &group) in self.blocks.iter().zip(&found.groups) {
                let group = nodes.evaluator.group(blocks.evaluator.ranks(group));
                for &node in block {
                    groups[node] = group;
                }
            }
            let order = if Rc::ptr_eq(&found.order, blocks.evaluator.own_order()) {
                Rc::clone(&self.order)
            } else {
                self.order_of_nodes(&found.order)
            };
            nodes.offer(&NumberedArrangement { groups, splits: None, order })?;
        }
        Ok(())
    }

    /// Returns the order of the nodes for one of the blocks.
    fn order_of_nodes(&self, order: &[u32]) -> Rc<[u32]> {
        order.iter().flat_map(|&block| self.blocks[block as usize].iter().map(|&node| node as u32)).collect()
    }
}

/// Blocks of nodes.
struct Blocks {
    /// By block: the indices of its nodes in order.
    nodes: Vec<Vec<usize>>,
    /// By node: the index of its block.
    of: Vec<usize>,
    /// By block: time of its steps on one GPU, microseconds, and size of its gradients, bytes.
    sums: Vec<(f64, f64)>,
    /// Maximum of both for blocks of several nodes.
    maximum: (f64, f64),
}

impl Blocks {
    /// Adds nodes with these sums to the block of the node `before`, or as a new block if there is
    /// none or it would exceed the maximum.
    fn add(&mut self, before: Option<usize>, nodes: &[usize], sums: (f64, f64)) {
        let block = before.map(|before| self.of[before]).filter(|&block| {
            let (us, bytes) = self.sums[block];
            us + sums.0 <= self.maximum.0 && bytes + sums.1 <= self.maximum.1
        });
        let block = block.unwrap_or_else(|| {
            self.nodes.push(Vec::new());
            self.sums.push((0.0, 0.0));
            self.nodes.len() - 1
        });
        for &node in nodes {
            self.of[node] = block;
        }
        self.nodes[block].extend_from_slice(nodes);
        self.sums[block] = (self.sums[block].0 + sums.0, self.sums[block].1 + sums.1);
    }
}

/// Returns whether a node can be placed as one with others: it has no collectives but the
/// all-reduce of its gradient, and shares no parameters.
fn is_plain(problem: &PlanProblem, structure: &ProblemGraph, node: usize) -> bool {
    let Node { parameters_of, synchronized, is_kept, .. } = &problem.nodes[node];
    parameters_of.is_none()
        && synchronized.is_none()
        && !is_kept
        && structure.users[node].len() < 2
        && !problem.checkpoints.contains(&NodeId(node))
}

/// Returns whether a node is plain and can be placed as one with the node `before`.
fn are_alike(problem: &PlanProblem, structure: &ProblemGraph, before: usize, node: usize) -> bool {
    is_plain(problem, structure, node)
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
    /// By node: whether the backward pass reads the output of the node before it in its block.
    is_read_backward: Vec<bool>,
}

impl<'c> CoarseCosts<'c> {
    /// Creates the cost model of `blocks` of the nodes of a problem.
    pub(super) fn new(costs: &'c dyn CostModel, blocks: &'c [Vec<usize>], problem: &PlanProblem) -> Self {
        let mut is_read_backward = vec![false; problem.nodes.len()];
        for pair in blocks.iter().flat_map(|block| block.windows(2)) {
            let [before, node] = [pair[0], pair[1]].map(|node| problem.nodes[node].backward_reads);
            is_read_backward[pair[1]] = before.output || node.input;
        }
        Self { costs, blocks, is_read_backward }
    }
}

/// Returns the results of forward steps that the backward step of a block reads.
fn backward_reads(problem: &PlanProblem, block: &[usize]) -> BackwardReads {
    let reads = || block.iter().map(|&node| problem.nodes[node].backward_reads);
    BackwardReads {
        input: reads().any(|reads| reads.input),
        output: reads().next_back().is_some_and(|reads| reads.output),
        saved: true,
    }
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

    fn round_trip(&self, NodeId(block): NodeId, from: &[usize], to: &[usize]) -> f64 {
        self.blocks[block].last().map_or(0.0, |&last| self.costs.round_trip(NodeId(last), from, to))
    }

    fn transfer_key(&self, NodeId(block): NodeId) -> u64 {
        self.blocks[block].last().map_or(u64::MAX, |&last| self.costs.transfer_key(NodeId(last)))
    }

    fn all_reduce(&self, bytes: u64, ranks: &[usize]) -> f64 {
        self.costs.all_reduce(bytes, ranks)
    }

    fn memory(&self, NodeId(block): NodeId, ranks: usize, shard_size: ShardSize) -> NodeMemory {
        let of_nodes =
            self.blocks[block].iter().map(|&node| self.costs.memory(NodeId(node), ranks, shard_size));
        // The output of a block is that of its last node. Outputs of the others are saved if the
        // backward pass reads them.
        let mut sum = NodeMemory::default();
        for (&node, memory) in self.blocks[block].iter().zip(of_nodes) {
            sum.held_bytes = sum.held_bytes.saturating_add(memory.held_bytes);
            sum.samples_bytes = sum.samples_bytes.max(memory.samples_bytes);
            sum.saved_bytes = sum.saved_bytes.saturating_add(memory.saved_bytes);
            if self.is_read_backward[node] {
                sum.saved_bytes = sum.saved_bytes.saturating_add(sum.output_bytes);
            }
            // The gradients of a node's input and output.
            let gradients = sum.output_bytes.saturating_mul(2);
            sum.step_bytes = sum.step_bytes.max(gradients).max(memory.step_bytes);
            sum.output_bytes = memory.output_bytes;
        }
        sum
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

    fn min_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        bounds_of(self.costs).min_all_reduce(bytes, ranks)
    }

    fn min_marginal_all_reduce(&self, bytes: u64, ranks: usize) -> f64 {
        bounds_of(self.costs).min_marginal_all_reduce(bytes, ranks)
    }
}

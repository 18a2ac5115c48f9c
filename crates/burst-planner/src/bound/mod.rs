//! Lower bounds of the iteration time.
//!
//! An *option* is a GPU count of a node with its costs; a *place* is the index of a node in
//! topological order. The *budget* is an upper bound on the GPU time of an iteration, and a *price*
//! of GPU time is in microseconds per GPU-microsecond. The *larger* shard of a batch that does not
//! divide evenly has one sample more than the *smaller* one.
//!
//! A rank that completes an iteration early starts the next one while others continue. The bound is
//! on a **cycle** of one rank: the time from the start of its first step to the end of its last
//! update, on whichever ranks the steps in between run. For every arrangement and every rank of a
//! node with a gradient, the cycle is at least
//!
//! - the steps of any path through the graph from that node on, forward and backward,
//! - plus the minimum transfers between the GPU counts of consecutive nodes, forward and backward,
//! - plus the rank's updates, or the all-reduces of gradients whose backward steps come last.
//!
//! # Chains
//! The **anchor** is the node with the longest update. A *case* is a range of its GPU counts, and
//! each case is bounded separately. A node necessarily shares a rank with the anchor if the GPU
//! counts of both add up to more than the number of GPUs. There are two cycles:
//!
//! - The cycle of a rank of the chain's first node contains the steps of all nodes.
//! - The cycle of a rank of the anchor contains the steps from the first node on that necessarily
//!   shares a rank with the anchor, and the anchor's update. The rank can have the smaller shard
//!   until ranks wait for each other for the first time.
//!
//! Updates of nodes on all GPUs count in both cycles. Dynamic programming over nodes and GPU counts
//! minimizes the maximum of both.
//!
//! # Other graphs
//! An *articulation node* is contained in all paths. Consider the part of the graph between an
//! articulation node and the next one. A rank of the articulation node computes in the part only in
//! its own time between the two nodes. Any other rank computes in the part only while all ranks of
//! the articulation node are between the two nodes. So the time between the two nodes, averaged
//! over these ranks, is at least the work of the part divided by the number of GPUs. It is also at
//! least the length of any path through the part with mean shards.
//!
//! A weighted mean of these lower bounds is a lower bound, too. The weights of the work and the
//! paths add up to 1 in each part. The anchor is an articulation node near the beginning. After its
//! backward step, its ranks have updates, or all-reduces of the gradients of all nodes before some
//! part. These count as far as they are necessarily on its ranks. The sum is minimized over the GPU
//! counts along a tree of edges; transfers over other edges are bounded by 0. Then weights are
//! moved to the terms that are largest for the minimizing counts (M. Frank, P. Wolfe, Naval
//! Research Logistics 3, 1956).
//!
//! # Regions
//! A *region* is the part between two articulation nodes. Its minimum is computed separately for
//! each pair of GPU counts at its ends, and includes the transfers from all producers to the
//! articulation node at its end. It is bounded by a game of two players: one chooses the weights of
//! paths and work, separately for the forward and the backward pass, and the other one chooses the
//! GPU counts. In each round, a player chooses the best response to the mean of the other one's
//! choices (fictitious play: J. Robinson, Annals of Mathematics 54, 1951). All weights give a lower
//! bound for each pair of GPU counts at the ends of the region, and so does the maximum over all
//! weights. The shortest path over articulation nodes with these values for the regions bounds the
//! iteration.
//!
//! Here a case is a range of the maximum GPU count of some articulation nodes near the beginning,
//! the *early nodes*. The anchor is the first early node with that count. The cycles of the
//! anchor's ranks, averaged over these ranks, contain all nodes after the anchor and those updates
//! that are necessarily on its ranks. A rank that also runs a node before the anchor starts its
//! cycle with that node. So earlier nodes count for the ranks that they necessarily share with the
//! anchor, with the smaller shards. If the maximum count is small, all early nodes are slow. Then
//! the cycle of the first node's ranks, which contains all early nodes, gets a larger weight.
//!
//! # Any graph
//! An iteration takes at least the mean computing time over all GPUs.
//!
//! # A budget of GPU time
//! With a price on GPU time, the minimum of a sum plus the priced time bounds the iteration time
//! within a budget (Lagrangian relaxation: H. Everett, Operations Research 11, 1963). GPU time is
//! at least all computing; in a chain, ranks that wait for samples have no other work.
//!
//! The bound with a price is loose if few choices of counts are near the budget: a mixture of two
//! choices, which is no arrangement, can be within it. For a chain, *labels* of time and GPU time
//! are extended node by node instead, as for resource-constrained shortest paths (M. Desrochers, F.
//! Soumis, INFOR 26, 1988). A label has the times of three cycles: that of any rank of the first
//! node, that of the first node's rank with the most work after its backward steps, and that of a
//! rank of the anchor.
//!
//! The work after the backward pass depends on which ranks the nodes have, so a step from one node
//! to the next also chooses the relation of the two lists: equal, one contains the other, or
//! neither. In the last case [a rank moves all its
//! samples](crate::CostBounds::min_transfer_unnested). Consecutive nodes on the first node's ranks
//! have their updates on each of these. After them:
//!
//! - The number of ranks with the larger shard among those chosen from the first list is a choice,
//!   if transfers depend on it.
//! - Consider a rank on the first list that sends gradients to a list without it. It has further
//!   backward steps and nothing to compute before them, so it is active while the gradients move.
//! - While lists are subsets of the list before, all their ranks have the updates of all these
//!   nodes. If |U| is the number of such ranks and |U| > G - g1 (G GPUs, g1 ranks of the first
//!   node), some rank of U runs the first node (pigeonhole), and the updates add up in the first
//!   cycle. If |U| exceeds the number of ranks without the larger shard of the first node, some
//!   rank of U has that larger shard. Otherwise the steps in its cycle are those with the smaller
//!   shard, until ranks wait for each other. If the ranks of U were chosen from those of the first
//!   node, only the first node's ranks are counted instead of all ranks.
//! - If no later node with gradients is on the first node's list, nothing else is reduced with the
//!   gradients of the first nodes, so their buckets are known. The all-reduce of a bucket starts
//!   after the last backward step of its nodes and after the bucket before. An update starts after
//!   its bucket and after the update before. The longest path through these ends the cycle. The
//!   last bucket follows all backward steps. A rank without an update of a node on another list
//!   only communicates during that bucket, which is GPU time. A rank with the smaller shard
//!   completes earlier and can have done its other updates by then.
//! - A list has a rank with the larger shard of the first node, only ranks with the smaller one, or
//!   none of the first node's. This is a choice, too, among the kinds that the numbers of ranks and
//!   the list before allow. In the first two cases, the updates are in the first cycle. In the last
//!   case, no rank of the first node has these updates to compute while it would otherwise only
//!   communicate.
//! - Whether a later node returns to the first list is a choice, too. If one does, the two items
//!   above are not counted. It must have the GPU count of the first node, and another list than the
//!   node before it.
//!
//! For every arrangement, one of the extended labels has no time above the arrangement's. A label
//! is pruned only in one of three cases: another label in the same state is no larger in any
//! component, whichever nodes follow; the minimum GPU time of the nodes that follow exceeds the
//! rest of the budget; or the label is no faster than the best known plan. Labels are merged into
//! one that is no larger than any of them. So the minimum over the labels of the last node bounds
//! all arrangements within the budget.

mod chain;
mod exposure;
mod extension;
mod first_run;
mod flows;
mod label;
mod labels;
mod prices;
mod regions;
mod relaxation;
mod search;
#[cfg(test)]
mod tests;
mod through;
mod transfer_bounds;
mod weights;

use std::cell::RefCell;
use std::sync::Arc;

use crate::NodeId;
use crate::costs::{CostModel, ShardSize, bounds_of};
use crate::problem::{GradientOptions, PlanProblem, ProblemGraph};
use first_run::{Buckets, FirstRun};
use transfer_bounds::{Subset, TransferBounds};

/// Costs of the nodes of a problem on a number of GPUs, from which lower bounds are computed.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    /// Number of GPUs.
    gpus: f64,
    /// All nodes, by place.
    nodes: Vec<BoundNode>,
    /// By part: the places of its nodes, ascending. An articulation node, which all paths contain,
    /// is a part of its own; the nodes between two of them are a part.
    parts: Vec<Vec<usize>>,
    /// Whether the graph is a chain. Ranks that wait for samples then have no other work.
    is_chain: bool,
    /// Place of the node whose GPU count determines where updates are counted.
    anchor: usize,
    /// For a chain, by place and option: bounds for the nodes up to this one on the first node's
    /// ranks. Empty for other graphs.
    first_runs: Vec<Vec<FirstRun>>,
    /// For other graphs: places of the articulation nodes with gradients before which at most a
    /// tenth of all step times with the smallest GPU counts is spent.
    early: Vec<usize>,
    /// Whether at most 3 % of these times is spent before one of them.
    has_anchor: bool,
}

/// Costs of a node by option.
#[derive(Debug, Clone)]
struct BoundNode {
    /// Index of its part.
    part: usize,
    /// Places of its producers, ascending. The bound counts the output of the last one.
    producers: Vec<usize>,
    /// Number of consumers.
    consumers: usize,
    /// Whether it or a node before it has parameters.
    needs_gradient: bool,
    /// Whether it has gradients to reduce.
    has_gradients: bool,
    /// Its options, in ascending order of GPU counts.
    options: Vec<BoundOption>,
    /// By option of the last producer and own option: minimum transfers forward and backward.
    transfers: Transfers,
    /// The same for a chain, if neither list of ranks contains the other.
    apart: Transfers,
    /// By option of the last producer, for a chain: transfers to the same ranks in another order.
    reordered: Vec<(f64, f64)>,
    /// By option of the last producer and own option, for a chain: transfers to a subset of the
    /// producer's ranks.
    subsets: Vec<Vec<Vec<Subset>>>,
    /// As `transfers`, for all other producers of an articulation node; empty for other nodes.
    other_transfers: Vec<Transfers>,
}

/// By option of a producer and of its consumer: transfers forward and backward.
type Transfers = Arc<Vec<Vec<(f64, f64)>>>;

/// An option: costs of a node on a GPU count, microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct BoundOption {
    /// The GPU count.
    gpus: f64,
    /// Number of ranks whose steps take the times below: those with the larger shard; for graphs
    /// other than chains, all ranks.
    ranks: f64,
    /// Forward step on a rank with the larger shard; for graphs other than chains, the mean over
    /// all ranks. 0 for nodes that need no gradient, which can run for the next iteration
    /// meanwhile.
    forward_us: f64,
    /// The same of the backward step.
    backward_us: f64,
    /// Difference between the steps with the larger and with the smaller shard, forward and
    /// backward.
    less_us: (f64, f64),
    /// Minimum update over the ranks.
    update_us: f64,
    /// Maximum update over the ranks.
    max_update_us: f64,
    /// Minimum duration that its gradient adds to an all-reduce.
    reduce_us: f64,
    /// Computing of all ranks, with the update, GPU-microseconds.
    computing_us: f64,
}

impl Bound {
    /// Computes the costs of the nodes of `problem` on `gpus` GPUs. An option is a GPU count of a
    /// node for which `is_counted` returns true and `costs` has times. O(nodes x counts^2).
    pub(super) fn new(
        problem: &PlanProblem,
        gpus: usize,
        structure: &ProblemGraph,
        costs: &dyn CostModel,
        is_counted: impl Fn(usize) -> bool,
    ) -> Self {
        let mut places = vec![0; structure.order.len()];
        for (place, &node) in structure.order.iter().enumerate() {
            places[node] = place;
        }
        let counts = |node: usize| {
            let counts = problem.nodes[node].gpu_counts.iter().copied();
            let is_known = |&count: &usize| {
                count <= gpus
                    && is_counted(count)
                    && costs.compute(NodeId(node), count, ShardSize::Larger).is_some()
            };
            counts.filter(is_known).collect::<Vec<_>>()
        };
        let moves = TransferBounds { structure, costs, counts: &counts, known: RefCell::default() };
        let transfers = |producer: usize, node: usize| moves.any_ranks(producer, node);
        let of_node = |&node: &usize| {
            let learns = if structure.needs_gradient[node] { 1.0 } else { 0.0 };
            let updates = if structure.users[node].is_empty() { 0.0 } else { 1.0 };
            let option = |count: usize| {
                let larger = costs.compute(NodeId(node), count, ShardSize::Larger).unwrap_or_default();
                let smaller = costs.compute(NodeId(node), count, ShardSize::Smaller).unwrap_or_default();
                let many = costs.ranks_with_larger_shard(count).min(count) as f64;
                let sum = |larger: f64, smaller: f64| many * larger + (count as f64 - many) * smaller;
                let less = |larger: f64, smaller: f64| {
                    if (many as usize) < count { learns * (larger - smaller).max(0.0) } else { 0.0 }
                };
                BoundOption {
                    gpus: count as f64,
                    ranks: many,
                    forward_us: learns * larger.forward_us,
                    backward_us: learns * larger.backward_us,
                    less_us: (
                        less(larger.forward_us, smaller.forward_us),
                        less(larger.backward_us, smaller.backward_us),
                    ),
                    update_us: updates * larger.update_us.min(smaller.update_us),
                    max_update_us: updates * larger.update_us.max(smaller.update_us),
                    reduce_us: updates
                        * bounds_of(costs).min_marginal_all_reduce(problem.nodes[node].gradient_bytes, count),
                    computing_us: sum(larger.forward_us, smaller.forward_us)
                        + learns * sum(larger.backward_us, smaller.backward_us)
                        + updates * sum(larger.update_us, smaller.update_us),
                }
            };
            let mut producers: Vec<usize> =
                structure.producers[node].iter().map(|&producer| places[producer]).collect();
            producers.sort_unstable();
            let transfers =
                producers.last().map_or(Transfers::default(), |&last| transfers(structure.order[last], node));
            let options = counts(node).into_iter().map(option).collect();
            BoundNode {
                part: 0,
                producers,
                consumers: structure.consumers[node].len(),
                needs_gradient: structure.needs_gradient[node],
                has_gradients: problem.nodes[node].gradient_bytes > 0 || !structure.users[node].is_empty(),
                options,
                transfers,
                apart: Transfers::default(),
                reordered: Vec::new(),
                subsets: Vec::new(),
                other_transfers: Vec::new(),
            }
        };
        let mut nodes: Vec<BoundNode> = structure.order.iter().map(of_node).collect();
        let parts = parts(&mut nodes, structure);
        let is_chain = parts.len() == nodes.len();
        for part in parts.iter().filter(|part| part.len() == 1) {
            let node = &mut nodes[part[0]];
            let others = node.producers.split_last().map_or(&[][..], |(_, others)| others);
            let of_producer = |&other: &usize| transfers(structure.order[other], structure.order[part[0]]);
            node.other_transfers = others.iter().map(of_producer).collect();
        }
        if is_chain {
            for (node, ends) in nodes.iter_mut().skip(1).zip(structure.order.windows(2)) {
                node.apart = moves.apart(ends[0], ends[1]);
                node.reordered = moves.reordered(ends[0], ends[1]);
                node.subsets = moves.subsets(ends[0], ends[1]);
            }
        } else {
            nodes.iter_mut().flat_map(|node| &mut node.options).for_each(BoundOption::use_mean_steps);
        }
        let cut = early_cut(&nodes, &parts);
        let anchor = if is_chain { longest_update(&nodes) } else { cut.unwrap_or(0) };
        let early = early_cuts(&nodes, &parts);
        let (gpus, first_runs, has_anchor) = (gpus as f64, Vec::new(), cut.is_some());
        let bound = Self { gpus, nodes, parts, is_chain, anchor, first_runs, early, has_anchor };
        if is_chain { bound.with_first_runs(problem, structure, costs) } else { bound }
    }

    fn with_first_runs(self, problem: &PlanProblem, structure: &ProblemGraph, costs: &dyn CostModel) -> Self {
        let gradient_bytes: Vec<u64> =
            structure.order.iter().map(|&node| problem.nodes[node].gradient_bytes).collect();
        let GradientOptions { bucket_bytes, overlap, .. } = problem.gradients;
        let buckets =
            Buckets { gradient_bytes: &gradient_bytes, bucket_bytes: overlap.then_some(bucket_bytes) };
        // Parameters of several nodes are reduced separately.
        let are_shared = structure.users.iter().any(|users| users.len() > 1);
        let first_runs = self.first_runs(&buckets, if are_shared { None } else { Some(costs) });
        Self { first_runs, ..self }
    }
}

impl BoundOption {
    /// Returns the counted forward and backward steps, summed over all ranks.
    fn work_us(&self) -> f64 {
        self.gpus * (self.forward_us + self.backward_us)
    }

    /// Replaces the maximum of steps over ranks by the mean.
    fn use_mean_steps(&mut self) {
        let smaller = (self.gpus - self.ranks) / self.gpus;
        self.forward_us -= smaller * self.less_us.0;
        self.backward_us -= smaller * self.less_us.1;
        let larger = self.ranks / self.gpus;
        self.less_us = (larger * self.less_us.0, larger * self.less_us.1);
        self.ranks = self.gpus;
    }
}

/// Divides the nodes into parts at the articulation nodes.
fn parts(nodes: &mut [BoundNode], structure: &ProblemGraph) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut is_open = false;
    for (place, is_cut) in structure.articulations().into_iter().enumerate() {
        if is_cut || !is_open {
            parts.push(Vec::new());
        }
        is_open = !is_cut;
        if let Some(part) = parts.last_mut() {
            part.push(place);
        }
        nodes[place].part = parts.len() - 1;
    }
    parts
}

/// Returns the place of the node with the longest update, or of the first one with a gradient if
/// there are no updates.
fn longest_update(nodes: &[BoundNode]) -> usize {
    let longest = |node: &BoundNode| node.options.iter().map(|option| option.update_us).fold(0.0, f64::max);
    let first = nodes.iter().position(|node| node.needs_gradient).unwrap_or(nodes.len() - 1);
    nodes.iter().map(longest).enumerate().fold((first, 0.0), |a, b| if b.1 > a.1 { b } else { a }).0
}

/// Returns the articulation nodes with gradients before which little time is spent.
fn early_cuts(nodes: &[BoundNode], parts: &[Vec<usize>]) -> Vec<usize> {
    let time = |place: usize| {
        let of_option = |option: &BoundOption| option.forward_us + option.backward_us;
        nodes[place].options.first().map_or(0.0, of_option)
    };
    let early = 0.1 * (0..nodes.len()).map(time).sum::<f64>();
    let (mut spent, mut cuts) = (0.0, Vec::new());
    for part in parts {
        if let [only] = part[..] {
            if nodes[only].needs_gradient && spent <= early {
                cuts.push(only);
            }
        }
        spent += part.iter().map(|&place| time(place)).sum::<f64>();
    }
    cuts
}

/// Returns the longest of the articulation nodes with gradients before which little time is spent.
fn early_cut(nodes: &[BoundNode], parts: &[Vec<usize>]) -> Option<usize> {
    let time = |place: usize| {
        let of_option = |option: &BoundOption| option.forward_us + option.backward_us;
        nodes[place].options.first().map_or(0.0, of_option)
    };
    let early = 0.03 * (0..nodes.len()).map(time).sum::<f64>();
    let (mut spent, mut best) = (0.0, None);
    for part in parts {
        if let [only] = part[..] {
            if nodes[only].needs_gradient && spent <= early && best.is_none_or(|best| time(only) > time(best))
            {
                best = Some(only);
            }
        }
        spent += part.iter().map(|&place| time(place)).sum::<f64>();
    }
    best
}

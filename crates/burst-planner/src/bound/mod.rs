//! How fast any arrangement can be at most.
//!
//! A rank that ends early begins the next iteration while others go on. What bounds the iteration time is a **cycle** of one rank: all
//! that lies between the beginning of its first step and the end of its last update, on whichever ranks. For every arrangement, and
//! each rank of a node that learns, that is at least
//!
//! - the steps of any path through the graph from that node on, forward, and the same back;
//! - the least that moving samples between the GPU counts of neighbours takes, there and back;
//! - and then the rank's updates, or all-reduces of gradients whose backward steps come last.
//!
//! # Chains
//! The **anchor** is the node with the longest update. Whatever its GPU count (a case each), there is a first node that certainly
//! shares a rank with it, since their counts add up to more than the GPUs there are. From there on the cycle of that rank and the
//! cycle of the first node's ranks go through the same steps; before it there are only steps of the latter, and the rank has the
//! anchor's update instead. The larger of both is least when the least of what comes before meets the least of what comes after,
//! for some first node: dynamic programming over nodes and counts finds it. The updates of nodes on all GPUs count in both cycles,
//! and a rank with the anchor may have the smaller share until ranks wait for each other for the first time.
//!
//! # Other graphs
//! Each rank of a node that all paths go through is between that node and the next one of its kind as long as it computes there,
//! and ranks that are not on that node compute only while all of these are. So the mean over its ranks is at least the work of the part
//! between the two, divided by all GPUs, as well as any path with the mean of all shares. Any weights of work and paths that
//! add up to one in each part make one sum. A node near the beginning that all go through is the anchor; after its backward step
//! come updates, or all-reduces of all that comes before some part, as far as they must be on its ranks. The least of the sum is
//! found node by node along a tree of the graph's edges, leaving out the others, which cost at least nothing. Weights move
//! towards what is largest for the counts that were found (M. Frank, P. Wolfe, Naval Research Logistics 3, 1956).
//!
//! # Regions
//! What lies between two nodes that all paths go through is a *region*. With the counts at both ends given, everything that its branches send
//! there counts, and its least is found by itself: weights of paths and of work are a strategy in a game whose other player chooses counts,
//! forward and backward steps apart. Each answers the mean of what the other one did so far (fictitious play: J. Robinson, Annals of
//! Mathematics 54, 1951). Any strategy bounds the region from below for every pair of counts at its ends, so the largest of all that were
//! met does, too; and the least way from one node that all paths go through to the next, with these figures for the regions between them,
//! bounds the iteration.
//!
//! The anchor is here the first of some early nodes that has the largest count of these, a case each. The mean over its ranks counts
//! what is after it, and the optimiser's steps as far as they must be on its ranks; what is before it counts as far as that must be,
//! too, with the smaller shares: a rank of both nodes begins its cycle with the earlier one. Where the largest count is small, all early
//! nodes are slow; then more of the sum is the cycle of the first node's ranks, which goes through all of them, instead.
//!
//! # Any graph
//! An iteration takes at least what ranks compute in it, as a mean over all GPUs.
//!
//! # A budget of GPU time
//! With a price on GPU time, the least of a sum and of the priced time bounds the iteration time within a budget
//! (Lagrangian relaxation: H. Everett, Operations Research 11, 1963). GPU time is at least all computing; in a chain, ranks that wait
//! for samples do nothing else meanwhile.
//!
//! The price leaves a gap where few choices of counts are near the budget: a mixture of two is within it that no arrangement is. In a
//! chain, *labels* of time and GPU time are gone through instead, node by node, as for shortest paths with a limited resource
//! (M. Desrochers, F. Soumis, INFOR 26, 1988). A label has the times of three cycles: of any of the first node's ranks, of that of them
//! with the most to do after its backward steps, and, once there is a node that shares a rank with the anchor, of this rank.
//!
//! What ranks do last depends on which ranks the nodes have, so a step from one node to the next is a choice of that, too. The two lists
//! have the same ranks; or those of one are all among those of the other; or neither, and then
//! [some rank moves all its samples](super::CostModel::min_transfer_unnested). Consecutive nodes on the first node's ranks have
//! their updates on each of these. After that:
//! - How many of the ranks that are chosen from the first list have the larger share there is another choice, where moving samples takes
//!   longer for some numbers than for others.
//! - A rank that gradients come from, and that is on the first list but not on the one they go to, has backward steps to do later and
//!   nothing to compute until then: it is active as long as they move.
//! - While ranks are among those of the node before, all of them have the updates of all these nodes. If they are more than there are
//!   ranks that are none of the first node's, one of them is in the first cycle, and its updates add up there. It is one with the larger share of the
//!   first node if they are more than those with the smaller share and those that are none of the first node's; if not, it takes as much less as the
//!   first nodes do with the smaller share, until ranks wait for each other. Where ranks were chosen from those of the first node, only these count.
//! - If no later node with gradients is on the first node's list of ranks, nothing is reduced with the gradients of the first nodes, so
//!   their buckets are known. Each begins after its last backward step and after the bucket before, and each update after its bucket and
//!   after the updates before: a path that ends the cycle instead of the updates. The last bucket comes after all backward steps: a rank
//!   that has no update of another list to do meanwhile only communicates then, which is GPU time. One with the smaller share is done
//!   sooner, and may have done its other updates by then.
//! - A list has a rank with the larger share of the first node, or only ranks with the smaller one, or none of the first node's: a
//!   choice, too, as far as numbers of ranks and the list before allow it. In the first two cases the updates are in the first cycle; in
//!   the last one no rank of the first node is spared from waiting by them.
//! - Whether a later node will be on the first list again is a choice as well: then neither is counted, and only a node with
//!   that count, on another list than the node before, can be the one.
//!
//! Whatever an arrangement is, its label is among those gone through, and no time is above its own. A label is left out only where
//! another one in the same state is no larger in any part and spares no more later, so that whatever follows is no larger either; or where what follows at least leads
//! beyond the budget, or to an iteration that is no faster than what was found. Where labels are merged, the merged one is no larger
//! than each. So the least time of the labels at the last node bounds all arrangements within the budget.

mod chain;
mod exposure;
mod first_run;
mod flows;
mod label;
mod labels;
mod prices;
mod regions;
mod relaxation;
mod search;
mod step;
#[cfg(test)]
mod tests;
mod through;
mod transfer_bounds;
mod weights;

use crate::NodeId;
use crate::costs::{CostModel, ShardSize, bounds_of};
use crate::problem::{GradientOptions, PlanProblem, ProblemGraph};
use first_run::{Buckets, FirstRun};
use transfer_bounds::{Subset, TransferBounds};

/// All that a bound on some number of GPUs is made of.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    gpus: f64,
    /// In an order in which producers come first.
    nodes: Vec<BoundNode>,
    /// By part between nodes that all paths go through: its nodes, by place; a node that all go through is a part by itself.
    parts: Vec<Vec<usize>>,
    /// Whether the graph is a chain: while samples move, the ranks that wait for them do nothing else.
    is_chain: bool,
    /// The node by whose count the optimiser's steps are counted.
    anchor: usize,
    /// In a chain, by place and option: what follows the first nodes, up to this one, on their ranks.
    first_runs: Vec<Vec<FirstRun>>,
    /// Outside of a chain: nodes that learn and that all paths go through, before which little time is spent.
    early: Vec<usize>,
    /// Whether there is such a node outside of a chain.
    has_anchor: bool,
}

#[derive(Debug, Clone)]
struct BoundNode {
    part: usize,
    /// Places of its producers. The bound counts what the last of them sends.
    producers: Vec<usize>,
    /// How many nodes use its output.
    consumers: usize,
    /// Whether its parameters, or those of a node before, are learned.
    learns: bool,
    /// Whether it has gradients to reduce.
    has_gradients: bool,
    options: Vec<BoundOption>,
    /// By option of the last producer and own option: moving samples forward and back.
    transfers: Transfers,
    /// The same in a chain, where neither one's ranks are all among the other's.
    apart: Transfers,
    /// By option of the last producer in a chain: moving samples to the same ranks in another order.
    turned: Vec<(f64, f64)>,
    /// By option of the last producer and own option in a chain: ranks that are chosen from the producer's.
    chosen: Vec<Vec<Vec<Subset>>>,
    /// The same as `transfers` of all other producers of a node that all paths go through, in their order; empty for other nodes.
    other_transfers: Vec<Transfers>,
}

/// By option of a producer and of its consumer: moving samples forward and back.
type Transfers = Vec<Vec<(f64, f64)>>;

#[derive(Debug, Clone, Copy, Default)]
struct BoundOption {
    gpus: f64,
    /// How many of them take so long.
    ranks: f64,
    /// Steps on a rank with the larger share; outside of chains, the mean of all ranks. A node that learns nothing can be done for
    /// the next iteration meanwhile.
    forward_us: f64,
    backward_us: f64,
    /// How much less these take with the smaller share, where there is one.
    less_us: (f64, f64),
    update_us: f64,
    /// On the rank where it takes longest.
    max_update_us: f64,
    reduce_us: f64,
    /// Computing of all ranks together, with the update.
    computing_us: f64,
}

impl Bound {
    /// O(nodes x counts^2).
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
        let moves = TransferBounds { structure, costs, counts: &counts };
        let transfers = |producer: usize, node: usize| moves.least(producer, node);
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
                producers.last().map_or(Vec::new(), |&last| transfers(structure.order[last], node));
            let options = counts(node).into_iter().map(option).collect();
            BoundNode {
                part: 0,
                producers,
                consumers: structure.consumers[node].len(),
                learns: structure.needs_gradient[node],
                has_gradients: problem.nodes[node].gradient_bytes > 0 || !structure.users[node].is_empty(),
                options,
                transfers,
                apart: Vec::new(),
                turned: Vec::new(),
                chosen: Vec::new(),
                other_transfers: Vec::new(),
            }
        };
        let mut nodes: Vec<BoundNode> = structure.order.iter().map(of_node).collect();
        let parts = parts(&mut nodes, structure, &places);
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
                node.turned = moves.turned(ends[0], ends[1]);
                node.chosen = moves.among(ends[0], ends[1]);
            }
        } else {
            nodes.iter_mut().flat_map(|node| &mut node.options).for_each(BoundOption::take_mean);
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
        // Parameters of several nodes are reduced by themselves.
        let are_shared = structure.users.iter().any(|users| users.len() > 1);
        let first_runs = self.first_runs(&buckets, if are_shared { None } else { Some(costs) });
        Self { first_runs, ..self }
    }
}

impl BoundOption {
    /// Forward and backward steps on all ranks together, as far as they are counted.
    fn work_us(&self) -> f64 {
        self.gpus * (self.forward_us + self.backward_us)
    }

    /// Steps take the mean of all ranks instead of the largest.
    fn take_mean(&mut self) {
        let smaller = (self.gpus - self.ranks) / self.gpus;
        self.forward_us -= smaller * self.less_us.0;
        self.backward_us -= smaller * self.less_us.1;
        let larger = self.ranks / self.gpus;
        self.less_us = (larger * self.less_us.0, larger * self.less_us.1);
        self.ranks = self.gpus;
    }
}

/// Divides the nodes at those that all paths go through.
fn parts(nodes: &mut [BoundNode], structure: &ProblemGraph, places: &[usize]) -> Vec<Vec<usize>> {
    // The farthest place that an edge from before a node leads to: if it is that node, and no path begins later, all paths go
    // through it.
    let count = nodes.len();
    let mut reaches = vec![0; count + 1];
    let mut sources = nodes.iter().filter(|node| node.producers.is_empty()).count();
    for place in 0..count {
        let node = structure.order[place];
        let farthest =
            structure.consumers[node].iter().map(|&consumer| places[consumer]).max().unwrap_or(count);
        reaches[place + 1] = farthest.max(reaches[place]);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut is_open = false;
    for place in 0..count {
        sources -= usize::from(nodes[place].producers.is_empty());
        let is_cut = reaches[place] <= place && sources == 0;
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

/// The place of the node that the optimiser takes longest for; the first one that learns if it has nothing to do.
fn longest_update(nodes: &[BoundNode]) -> usize {
    let longest = |node: &BoundNode| node.options.iter().map(|option| option.update_us).fold(0.0, f64::max);
    let first = nodes.iter().position(|node| node.learns).unwrap_or(nodes.len() - 1);
    nodes.iter().map(longest).enumerate().fold((first, 0.0), |a, b| if b.1 > a.1 { b } else { a }).0
}

/// Of the nodes that all paths go through and that learn, those before which little time is spent.
fn early_cuts(nodes: &[BoundNode], parts: &[Vec<usize>]) -> Vec<usize> {
    let time = |place: usize| {
        let of_option = |option: &BoundOption| option.forward_us + option.backward_us;
        nodes[place].options.first().map_or(0.0, of_option)
    };
    let early = 0.1 * (0..nodes.len()).map(time).sum::<f64>();
    let (mut spent, mut cuts) = (0.0, Vec::new());
    for part in parts {
        if let [only] = part[..] {
            if nodes[only].learns && spent <= early {
                cuts.push(only);
            }
        }
        spent += part.iter().map(|&place| time(place)).sum::<f64>();
    }
    cuts
}

/// Of the nodes that all paths go through and that learn, before which little time is spent, the one that takes longest.
fn early_cut(nodes: &[BoundNode], parts: &[Vec<usize>]) -> Option<usize> {
    let time = |place: usize| {
        let of_option = |option: &BoundOption| option.forward_us + option.backward_us;
        nodes[place].options.first().map_or(0.0, of_option)
    };
    let early = 0.03 * (0..nodes.len()).map(time).sum::<f64>();
    let (mut spent, mut best) = (0.0, None);
    for part in parts {
        if let [only] = part[..] {
            if nodes[only].learns && spent <= early && best.is_none_or(|best| time(only) > time(best)) {
                best = Some(only);
            }
        }
        spent += part.iter().map(|&place| time(place)).sum::<f64>();
    }
    best
}

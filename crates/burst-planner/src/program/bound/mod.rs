//! How fast any arrangement can be at most.
//!
//! For every arrangement the iteration takes at least
//!
//! - the steps of any path through the graph, forward and backward, each with the larger share, and the least that moving
//!   samples between their GPU counts takes;
//! - instead of a path through the part between two nodes that all paths go through, all work of that part divided by all GPUs;
//! - instead of the backward steps before such a node, the all-reduces of all gradients from there on, divided over all GPUs;
//! - what the optimiser still has to do on a rank after its last backward step, instead of the backward steps that are still to
//!   come on others: as much as nodes have to that must share ranks, since their GPU counts add up to more than there are.
//!
//! Any weights that add up to one make one sum of these, and with a price on GPU time the least value of that sum over all GPU
//! counts bounds the time within a budget (Lagrangian relaxation). The least value is found node by node along a tree of the
//! graph's edges, leaving out the others, which cost at least nothing. Weights move towards what is largest for the counts that
//! were found (M. Frank, P. Wolfe, Naval Research Logistics 3, 1956).

mod branches;
mod chain;
mod prices;
mod relaxation;
mod search;
mod series;
#[cfg(test)]
mod tests;
mod weights;

use super::costs::{Share, StepTimes, TrainingCosts};
use super::problem::{Structure, TrainingProblem};

/// All that a bound on some number of GPUs is made of.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    gpus: f64,
    /// In an order in which producers come first.
    nodes: Vec<BoundNode>,
    /// By part between nodes that all paths go through: its nodes, by place; a node that all go through is a part by itself.
    parts: Vec<Vec<usize>>,
    /// The same where the graph is no chain, and begins with a node that learns.
    items: Vec<series::Item>,
    /// Whether the graph is a chain: while samples move, the ranks that wait for them do nothing else.
    is_chain: bool,
    /// The node by whose count the optimiser's steps are counted.
    anchor: usize,
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
    options: Vec<BoundOption>,
    /// By producer, its option and own option: moving samples forward and back between different lists of ranks.
    inputs: Vec<Vec<Vec<(f64, f64)>>>,
    /// By option of the last producer and own option: the same, where ranks of the same count may be the same ones.
    transfers: Vec<Vec<(f64, f64)>>,
}

#[derive(Debug, Clone, Copy)]
struct BoundOption {
    gpus: f64,
    /// How many of them have the larger share.
    larger: f64,
    /// Steps on a rank with the larger share. A node that learns nothing can be done for the next iteration meanwhile.
    forward_us: f64,
    backward_us: f64,
    /// How much less these take with the smaller share, where there is one.
    less_us: f64,
    update_us: f64,
    reduce_us: f64,
    /// Forward and backward steps on all ranks together that certainly come after those of the nodes before: where shares are
    /// uneven, ranks with the smaller one may be ahead.
    work_us: f64,
    /// Computing of all ranks together, with the update.
    computing_us: f64,
}

impl Bound {
    /// O(nodes x counts^2).
    pub(super) fn new<C: TrainingCosts>(
        problem: &TrainingProblem,
        gpus: usize,
        structure: &Structure,
        costs: &C,
        is_counted: impl Fn(usize) -> bool,
    ) -> Self {
        let mut places = vec![0; structure.order.len()];
        for (place, &node) in structure.order.iter().enumerate() {
            places[node] = place;
        }
        let counts = |node: usize| {
            let counts = problem.nodes[node].gpu_counts.iter().copied();
            let is_known = |&count: &usize| {
                count <= gpus && is_counted(count) && costs.compute(node, count, Share::Larger).is_some()
            };
            counts.filter(is_known).collect::<Vec<_>>()
        };
        let of_node = |&node: &usize| {
            let learns = if structure.needs_gradient[node] { 1.0 } else { 0.0 };
            let updates = if structure.users[node].is_empty() { 0.0 } else { 1.0 };
            let option = |count: usize| {
                let larger = costs.compute(node, count, Share::Larger).unwrap_or_default();
                let smaller = costs.compute(node, count, Share::Smaller).unwrap_or_default();
                let many = costs.larger_shares(count).min(count) as f64;
                let sum = |larger: f64, smaller: f64| many * larger + (count as f64 - many) * smaller;
                let steps_us = |times: StepTimes| times.forward_us + times.backward_us;
                let less_us =
                    if (many as usize) < count { steps_us(larger) - steps_us(smaller) } else { 0.0 };
                BoundOption {
                    gpus: count as f64,
                    larger: many,
                    forward_us: learns * larger.forward_us,
                    backward_us: learns * larger.backward_us,
                    less_us: learns * less_us.max(0.0),
                    update_us: updates * larger.update_us.min(smaller.update_us),
                    reduce_us: updates * costs.least_reduce(problem.nodes[node].gradient_bytes, count),
                    work_us: learns * many * steps_us(larger),
                    computing_us: sum(larger.forward_us, smaller.forward_us)
                        + learns * sum(larger.backward_us, smaller.backward_us)
                        + updates * sum(larger.update_us, smaller.update_us),
                }
            };
            let own = counts(node);
            let mut producers: Vec<usize> =
                structure.producers[node].iter().map(|&producer| places[producer]).collect();
            producers.sort_unstable();
            let input = |&place: &usize| {
                let producer = structure.order[place];
                let back = if structure.needs_gradient[producer] { 1.0 } else { 0.0 };
                // What moves between nodes that learn nothing can move for the next iteration meanwhile.
                let least = |from, to| learns * costs.least_transfer(producer, from, to);
                let both = |from: usize, to: usize| (least(from, to), back * least(to, from));
                let of_producer = counts(producer).into_iter();
                of_producer
                    .map(|from| own.iter().map(|&to| both(from, to)).collect::<Vec<_>>())
                    .collect::<Vec<_>>()
            };
            let inputs: Vec<Vec<Vec<(f64, f64)>>> = producers.iter().map(input).collect();
            let transfers = producers.last().map_or(Vec::new(), |&last| {
                let of_producer = counts(structure.order[last]).into_iter();
                let rows = of_producer.zip(&inputs[producers.len() - 1]);
                let row = |(from, row): (usize, &Vec<(f64, f64)>)| {
                    let to = own.iter().zip(row);
                    to.map(|(&to, &both)| if from == to { (0.0, 0.0) } else { both }).collect()
                };
                rows.map(row).collect()
            });
            let options = own.into_iter().map(option).collect();
            BoundNode {
                part: 0,
                producers,
                consumers: structure.consumers[node].len(),
                learns: structure.needs_gradient[node],
                options,
                inputs,
                transfers,
            }
        };
        let mut nodes: Vec<BoundNode> = structure.order.iter().map(of_node).collect();
        let parts = parts(&mut nodes, structure, &places);
        let is_chain = parts.len() == nodes.len();
        let items = if is_chain { Vec::new() } else { series::items(&nodes, &parts) };
        let cut = early_cut(&nodes, &parts);
        let anchor = if is_chain { longest_update(&nodes) } else { cut.unwrap_or(0) };
        Self { gpus: gpus as f64, nodes, parts, items, is_chain, anchor, has_anchor: cut.is_some() }
    }
}

/// Divides the nodes at those that all paths go through.
fn parts(nodes: &mut [BoundNode], structure: &Structure, places: &[usize]) -> Vec<Vec<usize>> {
    // The farthest place that an edge from before a node leads to: if it is that node, and all later nodes depend on it, all
    // paths go through it.
    let count = nodes.len();
    let mut reaches = vec![0; count + 1];
    let mut sources = 0;
    for place in 0..count {
        let node = structure.order[place];
        let farthest =
            structure.consumers[node].iter().map(|&consumer| places[consumer]).max().unwrap_or(count);
        reaches[place + 1] = farthest.max(reaches[place]);
    }
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut is_open = false;
    for place in 0..count {
        sources += usize::from(nodes[place].producers.is_empty());
        let is_cut = reaches[place] <= place && sources <= 1;
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

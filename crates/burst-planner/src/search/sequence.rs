//! Initial arrangements that minimize a sum of times, as if all steps ran one after another.
//! Branches between a fork and a join run one after another or side by side, on several ranges of
//! ranks.

use std::rc::Rc;

use rustc_hash::FxHashSet;

use super::graph_parts::GraphParts;
use super::moves::on_rank_ranges;
use super::series_parallel::ParallelRegion;
use crate::NodeId;
use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::groups::GroupId;

/// Fractions of an all-reduce that are not hidden behind the backward pass.
const EXPOSED: [f64; 3] = [0.0, 0.25, 1.0];
/// Fractions of the order from which on, backwards, the iteration is assumed to wait for
/// communication.
const BUSY_FROM: [f64; 4] = [0.3, 0.55, 0.75, 0.95];
/// Weights of that path, relative to the path through all steps.
const BUSY_SHARES: [f64; 2] = [0.5, 1.0];
/// Prices of GPU time, times the number of GPUs.
const PRICES: [f64; 16] =
    [0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.7, 3.0, 5.0, 9.0, 15.0, 25.0, 45.0, 80.0, 150.0];
/// Prices of GPU time if other parameters are varied too.
const COARSE_PRICES: [f64; 5] = [0.0, 0.3, 1.5, 6.0, 25.0];

/// A sequence of items: nodes, or all branches between a fork and a join. An item has several
/// options, each with groups of ranks for its nodes. The cost of an item depends only on its option
/// and on that of the item before.
pub(super) struct Sequence {
    /// Indices of all nodes in topological order.
    order: Rc<[u32]>,
    /// The items in that order.
    items: Vec<Item>,
}

struct Item {
    /// Place of its first node in the order.
    place: usize,
    /// In ascending order of the number of ranks.
    options: Vec<ItemOption>,
    /// By option of the item before and by its option: duration of moving samples between them,
    /// forward and backward, microseconds.
    moves: Vec<Vec<f64>>,
}

/// An option of an item: groups of its nodes, and their costs.
struct ItemOption {
    /// Number of the first ranks that it uses.
    ranks: usize,
    /// Indices of the nodes of the item, each with its group.
    nodes: Vec<(usize, GroupId)>,
    /// Computing time of all ranks, GPU-microseconds.
    gpu_us: f64,
    /// Sums of times over the nodes; for branches, over those on the range of ranks with the most
    /// work.
    times: Times,
}

/// Sums of times, microseconds.
#[derive(Debug, Clone, Copy, Default)]
struct Times {
    /// All steps.
    compute: f64,
    /// Backward steps.
    backward: f64,
    /// All-reduces, each with its share of a full bucket.
    reduce: f64,
}

/// Weights of all-reduces.
#[derive(Debug, Clone, Copy)]
struct Exposure {
    /// End of the nodes in the order whose all-reduces count.
    until: usize,
    /// Weight of each all-reduce.
    reduces: f64,
    /// Weight by which the backward steps before that place are reduced, as the all-reduces hide
    /// them.
    backward: f64,
}

impl Sequence {
    /// Creates a sequence with a node per item. An option of a node is the first ranks, with one of
    /// the GPU counts `counts`. O(nodes x counts^2).
    pub(super) fn of_nodes(evaluator: &mut Evaluator<'_>, counts: &[usize]) -> Self {
        Self::new(evaluator, counts, &[])
    }

    /// Creates a sequence in which all branches between a fork and a join are one item. An option
    /// of it divides the first ranks, whose number is one of `counts`, into a number of ranges, on
    /// which the branches run side by side.
    pub(super) fn of_branches(
        evaluator: &mut Evaluator<'_>,
        counts: &[usize],
        graph_parts: &GraphParts,
    ) -> Self {
        let mut is_inside = vec![false; evaluator.problem().nodes.len()];
        let mut outermost = Vec::new();
        // Outer regions precede inner ones.
        for parallel in graph_parts.parallels.iter().filter(|parallel| parallel.branches.len() > 1) {
            let nodes = || parallel.branches.iter().flatten();
            if !nodes().any(|&node| is_inside[node]) {
                nodes().for_each(|&node| is_inside[node] = true);
                outermost.push(parallel);
            }
        }
        Self::new(evaluator, counts, &outermost)
    }

    fn new(evaluator: &mut Evaluator<'_>, counts: &[usize], parallels: &[&ParallelRegion]) -> Self {
        let order = Rc::clone(evaluator.own_order());
        let mut parallel_of = vec![None; order.len()];
        for (index, parallel) in parallels.iter().enumerate() {
            parallel.branches.iter().flatten().for_each(|&node| parallel_of[node] = Some(index));
        }
        let mut is_placed = vec![false; parallels.len()];
        let mut items: Vec<Item> = Vec::new();
        for (place, &node) in order.iter().enumerate() {
            let options = match parallel_of[node as usize] {
                Some(index) if is_placed[index] => continue,
                Some(index) => {
                    is_placed[index] = true;
                    branch_options(evaluator, parallels[index], counts, &order)
                }
                None => node_options(evaluator, node as usize, counts),
            };
            items.push(Item { place, options, moves: Vec::new() });
        }
        let mut sequence = Self { order, items };
        sequence.set_moves(evaluator);
        sequence
    }

    /// Sets the transfer durations. An output that passes other items moves with the item that it
    /// reaches next.
    fn set_moves(&mut self, evaluator: &Evaluator<'_>) {
        let mut item_of = vec![0; self.order.len()];
        for (index, item) in self.items.iter().enumerate() {
            let placing = item.options.first();
            placing.iter().flat_map(|placing| &placing.nodes).for_each(|&(node, _)| item_of[node] = index);
        }
        for index in 1..self.items.len() {
            let (before, item) = (&self.items[index - 1], &self.items[index]);
            // Outputs from before this item that it or later items use.
            let sent: Vec<usize> = (0..self.order.len())
                .filter(|&node| {
                    let consumers = &evaluator.structure().consumers[node];
                    item_of[node] < index && consumers.iter().any(|&consumer| item_of[consumer] >= index)
                })
                .collect();
            let to_all = |from: &ItemOption| {
                item.options
                    .iter()
                    .map(|to| sent.iter().map(|&node| moved_us(evaluator, node, from, to)).sum())
                    .collect()
            };
            self.items[index].moves = before.options.iter().map(to_all).collect();
        }
    }

    /// Returns the best arrangements on the first `gpus` ranks if steps run one after another: at
    /// most one for each price of GPU time and each fraction of all-reduces that is not hidden
    /// behind the backward pass. O(prices x items x options^2).
    pub(super) fn serial(&self, gpus: usize) -> Vec<NumberedArrangement> {
        let until = self.order.len();
        self.best(gpus, &PRICES, &EXPOSED.map(|reduces| Exposure { until, reduces, backward: 0.0 }))
    }

    /// Returns the best arrangements on the first `gpus` ranks if the iteration waits for the
    /// all-reduces of all nodes up to some place in the order, while the backward steps before it
    /// run.
    pub(super) fn communication_bound(&self, gpus: usize) -> Vec<NumberedArrangement> {
        let from = |&part: &f64| {
            let until = (part * self.order.len() as f64) as usize;
            BUSY_SHARES.map(|share| Exposure { until, reduces: share, backward: share })
        };
        self.best(gpus, &COARSE_PRICES, &BUSY_FROM.iter().flat_map(from).collect::<Vec<_>>())
    }

    fn best(&self, gpus: usize, prices: &[f64], exposures: &[Exposure]) -> Vec<NumberedArrangement> {
        let mut seen = FxHashSet::default();
        let mut best = Vec::new();
        for exposure in exposures {
            for price in prices {
                let Some(found) = self.solve(gpus, price / gpus as f64, exposure) else { continue };
                if seen.insert(found.groups.clone()) {
                    best.push(found);
                }
            }
        }
        best
    }

    fn solve(&self, gpus: usize, price: f64, exposure: &Exposure) -> Option<NumberedArrangement> {
        let cost = |item: &Item, placing: &ItemOption| {
            let Times { compute, backward, reduce } = placing.times;
            let reduces = if item.place < exposure.until { exposure.reduces * reduce } else { 0.0 };
            let hidden = if item.place + 1 < exposure.until { exposure.backward * backward } else { 0.0 };
            let active_us = placing.gpu_us + reduces * (1.0 - exposure.backward) * placing.ranks as f64;
            compute - hidden + reduces + active_us * price
        };
        let usable = |item: &Item| item.options.partition_point(|placing| placing.ranks <= gpus);
        let mut values: Vec<f64> = Vec::new();
        let mut choices: Vec<Vec<u32>> = Vec::with_capacity(self.items.len());
        for (index, item) in self.items.iter().enumerate() {
            let options = &item.options[..usable(item)];
            let first = if index == 0 { 0.0 } else { f64::INFINITY };
            let (mut next, mut choice) = (vec![first; options.len()], vec![0; options.len()]);
            for (from, &value) in values.iter().enumerate() {
                let from_ranks = self.items[index - 1].options[from].ranks;
                for (to, (placing, moved)) in options.iter().zip(&item.moves[from]).enumerate() {
                    let ranks = from_ranks.max(placing.ranks) as f64;
                    let arrives = value + moved * (1.0 + price * ranks);
                    if arrives < next[to] {
                        (next[to], choice[to]) = (arrives, from as u32);
                    }
                }
            }
            for (minimum, placing) in next.iter_mut().zip(options) {
                *minimum += cost(item, placing);
            }
            values = next;
            choices.push(choice);
        }
        let mut taken = (0..values.len()).min_by(|&a, &b| values[a].total_cmp(&values[b]))?;
        if !values[taken].is_finite() {
            return None;
        }
        let mut groups = vec![0; self.order.len()];
        for (item, choice) in self.items.iter().zip(&choices).rev() {
            for &(node, group) in &item.options[taken].nodes {
                groups[node] = group;
            }
            taken = choice[taken] as usize;
        }
        Some(NumberedArrangement { groups, splits: None, order: Rc::clone(&self.order) })
    }
}

/// Returns the duration of moving a node's output to all groups of the next item that use it.
fn moved_us(evaluator: &Evaluator<'_>, node: usize, from: &ItemOption, to: &ItemOption) -> f64 {
    // An output that passes is on the group of the item before, and moves to that of the next one.
    let placed = from.nodes.iter().find(|placed| placed.0 == node).unwrap_or(&from.nodes[0]);
    let consumers = &evaluator.structure().consumers[node];
    let users = to.nodes.iter().filter(|placed| consumers.contains(&placed.0));
    let mut groups: Vec<GroupId> = users.map(|placed| placed.1).collect();
    if groups.is_empty() {
        groups.push(to.nodes[0].1);
    }
    groups.sort_unstable();
    groups.dedup();
    groups.retain(|&group| group != placed.1);
    groups.into_iter().map(|group| both_ways(evaluator, node, placed.1, group)).sum()
}

/// Returns the options of a node on the first ranks, for each of the counts that it can run on.
fn node_options(evaluator: &mut Evaluator<'_>, node: usize, counts: &[usize]) -> Vec<ItemOption> {
    let mut options = Vec::new();
    for &count in counts {
        let group = evaluator.range(0, count);
        if evaluator.is_option(node, group) {
            let times = times(evaluator, node, group);
            let gpu_us = times.compute * count as f64;
            options.push(ItemOption { ranks: count, nodes: vec![(node, group)], gpu_us, times });
        }
    }
    options
}

/// Returns the options of branches for each number of ranks and of ranges that they are divided
/// into.
fn branch_options(
    evaluator: &mut Evaluator<'_>,
    parallel: &ParallelRegion,
    counts: &[usize],
    order: &Rc<[u32]>,
) -> Vec<ItemOption> {
    let everywhere = NumberedArrangement {
        groups: vec![evaluator.range(0, 1); order.len()],
        splits: None,
        order: Rc::clone(order),
    };
    let mut options = Vec::new();
    for &ranks in counts {
        for ranges in 1..=parallel.branches.len().min(ranks) {
            let Some(placed) = on_rank_ranges(evaluator, &everywhere, parallel, ranks, ranges) else {
                continue;
            };
            // By first rank: the times on a range of ranks.
            let mut ranges: Vec<(usize, Times)> = Vec::new();
            let (mut nodes, mut gpu_us) = (Vec::new(), 0.0);
            for &node in parallel.branches.iter().flatten() {
                let group = placed.groups[node];
                let (first, count) = (evaluator.ranks(group)[0], evaluator.ranks(group).len());
                let times = times(evaluator, node, group);
                gpu_us += times.compute * count as f64;
                nodes.push((node, group));
                match ranges.iter_mut().find(|range| range.0 == first) {
                    Some((_, range)) => range.add(times),
                    None => ranges.push((first, times)),
                }
            }
            let longest = ranges.into_iter().max_by(|a, b| a.1.compute.total_cmp(&b.1.compute));
            let times = longest.map(|range| range.1).unwrap_or_default();
            options.push(ItemOption { ranks, nodes, gpu_us, times });
        }
    }
    options
}

impl Times {
    fn add(&mut self, other: Self) {
        self.compute += other.compute;
        self.backward += other.backward;
        self.reduce += other.reduce;
    }
}

fn times(evaluator: &Evaluator<'_>, node: usize, group: GroupId) -> Times {
    let bucket = evaluator.problem().gradients.bucket_bytes.max(1);
    let bytes = evaluator.problem().nodes[node].gradient_bytes;
    let ranks = evaluator.ranks(group);
    let reduce = match bytes {
        0 => 0.0,
        _ if ranks.len() < 2 => 0.0,
        _ if bytes >= bucket => evaluator.costs().all_reduce(bytes, ranks),
        _ => evaluator.costs().all_reduce(bucket, ranks) * bytes as f64 / bucket as f64,
    };
    let steps = evaluator.steps(node, group);
    let back = if evaluator.structure().needs_gradient[node] { 1.0 } else { 0.0 };
    Times { compute: steps.total_us(), backward: back * steps.backward_us, reduce }
}

/// Returns the duration of moving a node's output to another group and its gradient back.
fn both_ways(evaluator: &Evaluator<'_>, node: usize, from: GroupId, to: GroupId) -> f64 {
    let (from, to) = (evaluator.ranks(from), evaluator.ranks(to));
    let back = if evaluator.structure().needs_gradient[node] { 1.0 } else { 0.0 };
    evaluator.costs().transfer(NodeId(node), from, to)
        + back * evaluator.costs().transfer(NodeId(node), to, from)
}

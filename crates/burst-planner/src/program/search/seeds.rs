//! Arrangements to begin with, by simpler models: they propose, and never judge.

use std::rc::Rc;

use super::super::bound::Bound;
use super::super::costs::TrainingCosts;
use super::super::evaluator::{Evaluator, Numbered};
use super::super::groups::GroupId;

/// How much of an all-reduce is taken to be not hidden behind the backward pass.
const EXPOSED: [f64; 3] = [0.0, 0.25, 1.0];
/// From which part of the order on, backwards, communication is taken to be what the iteration waits for.
const BUSY_FROM: [f64; 4] = [0.3, 0.55, 0.75, 0.95];
/// How much of the iteration's time is taken to be that path's, instead of the one through all steps.
const BUSY_SHARES: [f64; 2] = [0.5, 1.0];
/// What a GPU-microsecond is taken to be worth, microseconds, times the GPUs that there are.
const PRICES: [f64; 6] = [0.0, 0.05, 0.2, 0.6, 1.5, 4.0];

/// How many of the last nodes are placed on fewer GPUs.
const LENGTHS: [usize; 9] = [1, 2, 3, 4, 6, 9, 14, 22, 35];
/// The same where the problem is relaxed.
const RELAXED_PRICES: [f64; 4] = [0.0, 0.2, 0.7, 2.0];

/// What nodes cost on the first ranks, and moving between such groups, in the order of the nodes: a chain, whatever the graph.
pub(super) struct Chain {
    order: Rc<[u32]>,
    counts: Vec<usize>,
    groups: Vec<GroupId>,
    /// By place in the order and count; `None` where there are no times.
    nodes: Vec<Vec<Option<ChainTimes>>>,
    /// By place but the first: what it costs to change from one count to another there, `from * counts + to`.
    changes: Vec<Vec<f64>>,
}

/// What a node takes on some ranks, microseconds.
#[derive(Debug, Clone, Copy)]
struct ChainTimes {
    /// All its steps.
    compute: f64,
    /// The backward step alone.
    backward: f64,
    /// The all-reduce, by share of a full bucket.
    reduce: f64,
}

/// What of all-reduces counts.
#[derive(Debug, Clone, Copy)]
struct Exposure {
    /// Those of the nodes up to this place in the order.
    until: usize,
    /// So much of each.
    reduces: f64,
    /// Instead of so much of the backward steps before that place, which they hide.
    backward: f64,
}

impl Chain {
    /// O(places x counts^2).
    pub(super) fn new<C: TrainingCosts>(evaluator: &mut Evaluator<'_, C>, counts: &[usize]) -> Self {
        let order: Rc<[u32]> = evaluator.structure().order.iter().map(|&node| node as u32).collect();
        let groups: Vec<GroupId> = counts.iter().map(|&count| evaluator.range(0, count)).collect();
        let mut places = vec![0; order.len()];
        for (place, &node) in order.iter().enumerate() {
            places[node as usize] = place;
        }
        let bucket = evaluator.problem().gradients.bucket_bytes.max(1);
        let nodes = order.iter().map(|&node| {
            let node = node as usize;
            let bytes = evaluator.problem().nodes[node].gradient_bytes;
            let of_group = |&group: &GroupId| {
                let is_allowed =
                    evaluator.problem().nodes[node].gpu_counts.contains(&evaluator.ranks(group).len());
                (is_allowed && evaluator.knows(node, group)).then(|| {
                    let ranks = evaluator.ranks(group);
                    let reduce_us = match bytes {
                        0 => 0.0,
                        _ if ranks.len() < 2 => 0.0,
                        _ if bytes >= bucket => evaluator.costs().reduce(bytes, ranks),
                        _ => evaluator.costs().reduce(bucket, ranks) * bytes as f64 / bucket as f64,
                    };
                    let steps = evaluator.steps(node, group);
                    let back = if evaluator.structure().needs_gradient[node] { 1.0 } else { 0.0 };
                    ChainTimes {
                        compute: steps.total_us(),
                        backward: back * steps.backward_us,
                        reduce: reduce_us,
                    }
                })
            };
            groups.iter().map(of_group).collect()
        });
        let nodes: Vec<Vec<Option<ChainTimes>>> = nodes.collect();
        let mut changes = vec![vec![0.0; counts.len() * counts.len()]; order.len()];
        for (place, &producer) in order.iter().enumerate() {
            let producer = producer as usize;
            let consumers = &evaluator.structure().consumers[producer];
            let Some(last) = consumers.iter().map(|&consumer| places[consumer]).max() else { continue };
            let back = if evaluator.structure().needs_gradient[producer] { 1.0 } else { 0.0 };
            for (i, &from) in groups.iter().enumerate() {
                for (j, &to) in groups.iter().enumerate().filter(|&(j, _)| j != i) {
                    let (wide, narrow) = (evaluator.ranks(from), evaluator.ranks(to));
                    let costs = evaluator.costs();
                    let both_ways = costs.transfer(producer, wide, narrow)
                        + back * costs.transfer(producer, narrow, wide);
                    for change in &mut changes[place + 1..=last] {
                        change[i * counts.len() + j] += both_ways;
                    }
                }
            }
        }
        Self { order, counts: counts.to_vec(), groups, nodes, changes }
    }

    /// The best chains with counts up to `gpus` where steps follow each other, one for each price of GPU time and each share of
    /// all-reduces that is exposed. O(prices x places x counts^2).
    pub(super) fn one_after_another(&self, gpus: usize) -> Vec<Numbered> {
        let until = self.order.len();
        self.best(gpus, &EXPOSED.map(|reduces| Exposure { until, reduces, backward: 0.0 }))
    }

    /// The same where the iteration waits for the all-reduces of all nodes up to some place, beside which the backward steps
    /// before it run.
    pub(super) fn behind_communication(&self, gpus: usize) -> Vec<Numbered> {
        let from = |&part: &f64| {
            let until = (part * self.order.len() as f64) as usize;
            BUSY_SHARES.map(|share| Exposure { until, reduces: share, backward: share })
        };
        self.best(gpus, &BUSY_FROM.iter().flat_map(from).collect::<Vec<_>>())
    }

    fn best(&self, gpus: usize, exposures: &[Exposure]) -> Vec<Numbered> {
        let usable = self.counts.iter().take_while(|&&count| count <= gpus).count();
        let prices = PRICES.iter().map(|price| price / gpus as f64);
        let pairs = prices.flat_map(|price| exposures.iter().map(move |&exposure| (price, exposure)));
        let mut best: Vec<Numbered> =
            pairs.filter_map(|(price, exposure)| self.solve(usable, price, exposure)).collect();
        best.dedup();
        best
    }

    fn solve(&self, usable: usize, price: f64, exposure: Exposure) -> Option<Numbered> {
        let counts = self.counts.len();
        let gpus = |index: usize| self.counts[index] as f64;
        let cost = |place: usize, index: usize| {
            let node = self.nodes[place][index];
            let reduces = if place < exposure.until { exposure.reduces } else { 0.0 };
            let hides = if place + 1 < exposure.until { exposure.backward } else { 0.0 };
            node.map_or(f64::INFINITY, |node| {
                let active_us = node.compute + reduces * node.reduce * (1.0 - exposure.backward);
                let time_us = node.compute - hides * node.backward + reduces * node.reduce;
                time_us + active_us * price * gpus(index)
            })
        };
        let mut value: Vec<f64> = (0..usable).map(|index| cost(0, index)).collect();
        let mut choices: Vec<Vec<u32>> = Vec::with_capacity(self.order.len());
        for place in 1..self.order.len() {
            let mut next = Vec::with_capacity(usable);
            let mut choice = Vec::with_capacity(usable);
            for to in 0..usable {
                let arrive = |from: usize| {
                    let change = self.changes[place][from * counts + to];
                    value[from] + change * (1.0 + price * gpus(from).max(gpus(to)))
                };
                let best = (0..usable).map(|from| (arrive(from), from));
                let (least, from) = best.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a });
                next.push(least + cost(place, to));
                choice.push(from as u32);
            }
            value = next;
            choices.push(choice);
        }
        let last = (0..usable).min_by(|&a, &b| value[a].total_cmp(&value[b]))?;
        if !value[last].is_finite() {
            return None;
        }
        let mut groups = vec![0; self.order.len()];
        let mut index = last;
        for place in (0..self.order.len()).rev() {
            groups[self.order[place] as usize] = self.groups[index];
            if place > 0 {
                index = choices[place - 1][index] as usize;
            }
        }
        Some(Numbered { groups, order: Rc::clone(&self.order) })
    }
}

/// All nodes on the first ranks, but for the last ones on fewer: large matrices of the last layers are not summed up then. On the
/// first or the last ranks, for each of some lengths and counts.
pub(super) fn narrow_ends<C: TrainingCosts>(
    evaluator: &mut Evaluator<'_, C>,
    gpus: usize,
    counts: &[usize],
) -> Vec<Numbered> {
    let order: Rc<[u32]> = evaluator.structure().order.iter().map(|&node| node as u32).collect();
    let usable: Vec<usize> = counts.iter().copied().take_while(|&count| count <= gpus).collect();
    let mut seeds = Vec::new();
    for &wide in usable.iter().rev().take(2) {
        let all = evaluator.range(0, wide);
        for &narrow in usable.iter().filter(|&&narrow| narrow < wide && narrow.is_power_of_two()).take(3) {
            for start in [0, gpus - narrow] {
                let few = evaluator.range(start, narrow);
                for length in LENGTHS.into_iter().take_while(|&length| length < order.len()) {
                    let mut groups = vec![all; order.len()];
                    for &node in &order[order.len() - length..] {
                        groups[node as usize] = few;
                    }
                    seeds.push(Numbered { groups, order: Rc::clone(&order) });
                }
            }
        }
    }
    let is_possible = |seed: &Numbered| {
        let mut places = seed.groups.iter().enumerate();
        places.all(|(node, &group)| evaluator.is_option(node, group))
    };
    seeds.retain(is_possible);
    seeds
}

/// The GPU counts that are best for relaxations of the problem on `gpus` GPUs, on the first ranks; and with a node that the optimiser
/// takes long for, or all from there on, on the last ranks, where its update can begin before others end their backward steps.
pub(super) fn relaxed<C: TrainingCosts>(
    evaluator: &mut Evaluator<'_, C>,
    gpus: usize,
    counts: &[usize],
) -> Vec<Numbered> {
    let is_proposed = |count: usize| counts.contains(&count);
    let bound = Bound::new(evaluator.problem(), gpus, evaluator.structure(), evaluator.costs(), is_proposed);
    let order: Vec<usize> = evaluator.structure().order.clone();
    let numbers: Rc<[u32]> = order.iter().map(|&node| node as u32).collect();
    let heaviest = bound.longest_update();
    let mut seeds = Vec::new();
    for counts in bound.choices(&RELAXED_PRICES) {
        let end =
            counts.iter().skip(heaviest).take_while(|&&count| count == counts[heaviest]).count() + heaviest;
        for last in [0..0, heaviest..heaviest + 1, heaviest..end, heaviest..order.len()] {
            let mut groups = vec![0; order.len()];
            for (place, &count) in counts.iter().enumerate() {
                let start = if last.contains(&place) { gpus - count } else { 0 };
                groups[order[place]] = evaluator.range(start, count);
            }
            seeds.push(Numbered { groups, order: Rc::clone(&numbers) });
        }
    }
    seeds.dedup();
    seeds
}

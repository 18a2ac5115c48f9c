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

use std::ops::Range;

use super::costs::{Share, TrainingCosts};
use super::problem::{Structure, TrainingProblem};

/// Into how many ranges the options of the anchor are divided at most.
const MOST_CASES: usize = 12;
/// How often weights are moved at most.
const ROUNDS: usize = 16;
/// How much the optimiser's steps count instead of the backward steps of other ranks meanwhile, in turns.
/// Elsewhere, and in chains.
const TAILS: [[f64; 5]; 2] = [[1.0, 0.5, 0.0, 0.75, 0.25], [0.3, 1.0, 0.6, 0.15, 0.0]];
/// Pairs of options that are looked at for one bound, about.
const WORK: usize = 40_000_000;
/// How often weights are moved to propose choices.
const PROPOSALS: usize = 3;
/// How often the price is halved in on for given weights.
const PRICES: usize = 6;

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
}

#[derive(Debug, Clone)]
struct BoundNode {
    part: usize,
    /// Places of its producers. The bound counts what the last of them sends.
    producers: Vec<usize>,
    /// How many nodes use its output.
    consumers: usize,
    options: Vec<BoundOption>,
    /// By option of the last producer and own option: moving samples forward and back.
    transfers: Vec<Vec<(f64, f64)>>,
}

#[derive(Debug, Clone, Copy)]
struct BoundOption {
    gpus: f64,
    forward_us: f64,
    backward_us: f64,
    update_us: f64,
    reduce_us: f64,
    /// Computing of all ranks together: forward and backward, and with the update.
    work_us: f64,
    computing_us: f64,
}

/// What of the sum counts how much.
#[derive(Debug, Clone, PartialEq)]
struct Weights {
    /// By node: the part of the paths that go through it.
    paths: Vec<f64>,
    /// By part: how much its work counts.
    work: Vec<f64>,
    /// By part: how much it counts that all-reduces before it and in it come after its backward steps.
    reduces: Vec<f64>,
}

/// How closely a bound is looked for.
struct Effort {
    cases: usize,
    tails: usize,
    rounds: usize,
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
                let backward_us = learns * larger.backward_us;
                let work_us = sum(larger.forward_us, smaller.forward_us)
                    + learns * sum(larger.backward_us, smaller.backward_us);
                let update_us = updates * larger.update_us;
                BoundOption {
                    gpus: count as f64,
                    forward_us: larger.forward_us,
                    backward_us,
                    update_us,
                    reduce_us: updates * costs.least_reduce(problem.nodes[node].gradient_bytes, count),
                    work_us,
                    computing_us: work_us + updates * sum(larger.update_us, smaller.update_us),
                }
            };
            let own = counts(node);
            let mut producers: Vec<usize> =
                structure.producers[node].iter().map(|&producer| places[producer]).collect();
            producers.sort_unstable();
            let transfers = producers.last().map_or(Vec::new(), |&last| {
                let producer = structure.order[last];
                let back = if structure.needs_gradient[producer] { 1.0 } else { 0.0 };
                let both = |from: usize, to: usize| {
                    let least =
                        |from, to| if from == to { 0.0 } else { costs.least_transfer(producer, from, to) };
                    (least(from, to), back * least(to, from))
                };
                counts(producer).iter().map(|&from| own.iter().map(|&to| both(from, to)).collect()).collect()
            });
            let options = own.into_iter().map(option).collect();
            BoundNode { part: 0, producers, consumers: structure.consumers[node].len(), options, transfers }
        };
        let mut nodes: Vec<BoundNode> = structure.order.iter().map(of_node).collect();
        let parts = parts(&mut nodes, structure, &places);
        let is_chain = parts.len() == nodes.len();
        let anchor = if is_chain { longest_update(&nodes) } else { early_cut(&nodes, &parts) };
        Self { gpus: gpus as f64, nodes, parts, is_chain, anchor }
    }

    /// No arrangement whose GPU time is within the budget is faster, microseconds.
    pub(super) fn within(&self, budget_us: f64) -> f64 {
        if self.nodes.iter().any(|node| node.options.is_empty()) {
            return 0.0;
        }
        let Effort { cases, tails, rounds } = self.effort();
        // Whatever the count of the node that the optimiser's steps are counted by: each is a case of its own.
        let mut least = f64::INFINITY;
        for case in self.cases(cases) {
            let mut bound: f64 = 0.0;
            for &tail in &TAILS[usize::from(self.is_chain)][..tails] {
                // A case that is no faster than another one does not matter.
                if bound < least {
                    bound = bound.max(self.within_case(&case, tail, budget_us, least, rounds));
                }
            }
            least = least.min(bound);
        }
        least
    }

    /// A step of the search for options is a sum over all nodes and pairs of their options: the more there are, the fewer are made.
    fn effort(&self) -> Effort {
        let options = self.nodes.iter().map(|node| node.options.len()).max().unwrap_or(1);
        let solutions = (WORK / (self.nodes.len() * options * options)).max(16);
        let cases = (solutions / 64).clamp(1, MOST_CASES);
        let tails = (solutions / (cases * 64)).clamp(1, if self.is_chain { TAILS[1].len() } else { 2 });
        Effort { cases, tails, rounds: (solutions / (cases * tails * 4)).clamp(1, ROUNDS) }
    }

    /// The place of the node that the optimiser takes longest for.
    pub(super) fn longest_update(&self) -> usize {
        longest_update(&self.nodes)
    }

    /// GPU counts, by place, that are best for some weights and these prices of GPU time, times the number of GPUs.
    pub(super) fn choices(&self, prices: &[f64]) -> Vec<Vec<usize>> {
        let mut found: Vec<Vec<usize>> = Vec::new();
        if self.nodes.iter().any(|node| node.options.is_empty()) {
            return found;
        }
        for case in self.cases(if self.is_chain { MOST_CASES } else { 4 }) {
            for tail in [0.0, 1.0] {
                let mut weights = self.first_weights();
                for &price in prices {
                    found.push(self.solve(&weights, &case, tail, price / self.gpus).choice);
                }
                // Where communication is slow, what counts most changes with what is chosen for it.
                for round in 0..PROPOSALS {
                    let before = weights.clone();
                    let free = self.solve(&weights, &case, tail, 0.0).choice;
                    let step = 2.0 / (round as f64 + 3.0);
                    self.shift(&mut weights, (&case, tail), &[free.clone(), free], &[1.0, 0.0], step);
                    if weights == before {
                        break;
                    }
                    found.push(self.solve(&weights, &case, tail, 0.0).choice);
                    found.push(self.solve(&weights, &case, tail, 0.3 / self.gpus).choice);
                }
            }
        }
        found.sort();
        found.dedup();
        let count = |(node, &option): (&BoundNode, &usize)| node.options[option].gpus as usize;
        found.iter().map(|choice| self.nodes.iter().zip(choice).map(count).collect()).collect()
    }

    /// The fastest path through each part.
    fn first_weights(&self) -> Weights {
        let mut weights = Weights {
            paths: vec![0.0; self.nodes.len()],
            work: vec![0.0; self.parts.len()],
            reduces: vec![0.0; self.parts.len()],
        };
        let fastest = |node: &BoundNode| {
            let times = node.options.iter().map(|option| option.forward_us + option.backward_us);
            times.fold(f64::INFINITY, f64::min)
        };
        let times: Vec<f64> = self.nodes.iter().map(fastest).collect();
        for part in &self.parts {
            for node in self.critical(part, &times).0 {
                weights.paths[node] = 1.0;
            }
        }
        weights
    }

    /// The same for arrangements whose anchor takes this option, when the optimiser's steps count so much.
    ///
    /// It is not looked for beyond `enough`.
    fn within_case(&self, case: &Range<usize>, tail: f64, budget_us: f64, enough: f64, rounds: usize) -> f64 {
        let mut weights = self.first_weights();
        let mut best: f64 = 0.0;
        let mut price = 0.0;
        for round in 0..rounds {
            let before = weights.clone();
            let (bound, found, used) = self.priced(&weights, (case, tail), budget_us, &mut price);
            best = best.max(bound);
            self.shift(&mut weights, (case, tail), &found, &used, 2.0 / (round as f64 + 3.0));
            if weights == before || best >= enough {
                break;
            }
        }
        best
    }

    /// The best bound of these weights over all prices of GPU time, and a mixture of the counts on both sides of the budget.
    fn priced(
        &self,
        weights: &Weights,
        (case, tail): (&Range<usize>, f64),
        budget_us: f64,
        price: &mut f64,
    ) -> (f64, [Vec<usize>; 2], [f64; 2]) {
        let free = self.solve(weights, case, tail, 0.0);
        if free.gpu_us <= budget_us {
            *price = 0.0;
            return (free.value, [free.choice.clone(), free.choice], [1.0, 0.0]);
        }
        let (mut low, mut over) = (0.0, free);
        let mut high = if *price > 0.0 { *price * 2.0 } else { 1.0 / self.gpus };
        let mut within = self.solve(weights, case, tail, high);
        for _ in 0..40 {
            if within.gpu_us <= budget_us {
                break;
            }
            (low, over) = (high, within);
            high *= 4.0;
            within = self.solve(weights, case, tail, high);
        }
        let bound = |solved: &Solved, price: f64| solved.value - price * budget_us;
        let mut best = bound(&over, low).max(bound(&within, high));
        if within.gpu_us > budget_us {
            // No counts keep the budget.
            return (best, [within.choice.clone(), within.choice], [1.0, 0.0]);
        }
        for _ in 0..PRICES {
            let middle = f64::midpoint(low, high);
            let solved = self.solve(weights, case, tail, middle);
            best = best.max(bound(&solved, middle));
            if solved.gpu_us <= budget_us {
                (high, within) = (middle, solved);
            } else {
                (low, over) = (middle, solved);
            }
        }
        *price = high;
        let part = ((budget_us - within.gpu_us) / (over.gpu_us - within.gpu_us)).clamp(0.0, 1.0);
        (best, [over.choice, within.choice], [part, 1.0 - part])
    }

    /// Weights go towards what is largest for a mixture of choices.
    fn shift(
        &self,
        weights: &mut Weights,
        (case, tail): (&Range<usize>, f64),
        found: &[Vec<usize>; 2],
        used: &[f64; 2],
        step: f64,
    ) {
        let mix = |node: usize, figure: &dyn Fn(&BoundOption) -> f64| -> f64 {
            found
                .iter()
                .zip(used)
                .map(|(choice, part)| part * figure(&self.nodes[node].options[choice[node]]))
                .sum()
        };
        let forward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.forward_us)).collect();
        let backward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.backward_us)).collect();
        let both: Vec<f64> =
            forward.iter().zip(&backward).map(|(forward, backward)| forward + backward).collect();
        let (mut backward_of, mut reduce_of) = (vec![0.0; self.parts.len()], vec![0.0; self.parts.len()]);
        for (index, part) in self.parts.iter().enumerate() {
            let (path, length) = self.critical(part, &both);
            let work: f64 = part.iter().map(|&node| mix(node, &|o| o.work_us)).sum::<f64>() / self.gpus;
            let on_path = if work > length { 0.0 } else { step };
            for &node in part {
                weights.paths[node] *= 1.0 - step;
            }
            for &node in &path {
                weights.paths[node] += on_path;
            }
            weights.work[index] = weights.work[index] * (1.0 - step) + step - on_path;
            backward_of[index] = path.iter().map(|&node| backward[node]).sum();
            reduce_of[index] =
                part.iter().map(|&node| mix(node, &|o| o.reduce_us * o.gpus / self.gpus)).sum();
        }
        // All-reduces of parts up to one, instead of the backward steps before it and of the optimiser's steps.
        let anchor = self.least_of(case);
        let updates: f64 =
            (0..self.nodes.len()).map(|node| mix(node, &|o| self.update(node, o, &anchor, tail))).sum();
        let anchored = if self.is_chain { tail * anchor.update_us } else { 0.0 };
        let (mut best, mut gain, mut sum) = (None, updates + anchored, 0.0);
        for index in 0..self.parts.len() {
            sum += reduce_of[index];
            let hidden: f64 = backward_of[..index].iter().sum();
            if sum - hidden > gain {
                (best, gain) = (Some(index), sum - hidden);
            }
        }
        for weight in &mut weights.reduces {
            *weight *= 1.0 - step;
        }
        if let Some(best) = best {
            weights.reduces[best] += step;
        }
    }

    /// The longest path through a part by these times, and its length.
    fn critical(&self, part: &[usize], times: &[f64]) -> (Vec<usize>, f64) {
        let Some(&begin) = part.first() else { return (Vec::new(), 0.0) };
        let mut longest: Vec<(f64, Option<usize>)> = Vec::with_capacity(part.len());
        let index = |node: usize| part.binary_search(&node).ok();
        for &node in part {
            let inside = self.nodes[node].producers.iter().filter(|&&producer| producer >= begin);
            let before = inside.filter_map(|&producer| index(producer));
            let best = before.map(|before| (longest[before].0, Some(before)));
            let (length, before) = best.fold((0.0, None), |a, b| if b.0 > a.0 { b } else { a });
            longest.push((length + times[node], before));
        }
        let last = (0..part.len()).max_by(|&a, &b| longest[a].0.total_cmp(&longest[b].0));
        let length = last.map_or(0.0, |last| longest[last].0);
        let path = std::iter::successors(last, |&at| longest[at].1).map(|at| part[at]).collect();
        (path, length)
    }

    /// The options of the anchor in at most so many ranges.
    fn cases(&self, most: usize) -> Vec<Range<usize>> {
        let options = self.nodes[self.anchor].options.len();
        let ranges = options.min(most);
        (0..ranges).map(|index| index * options / ranges..(index + 1) * options / ranges).collect()
    }

    /// What any of some options of the anchor has at least: the smallest count shares ranks with the fewest nodes.
    fn least_of(&self, case: &Range<usize>) -> BoundOption {
        let options = &self.nodes[self.anchor].options[case.clone()];
        let update_us = options.iter().map(|option| option.update_us).fold(f64::INFINITY, f64::min);
        BoundOption { update_us, ..options[0] }
    }

    /// The least value of the weighted sum with a price on GPU time, over all counts with which the anchor takes one of its
    /// options `case`.
    ///
    /// In a chain the anchor is the node with the longest update, and the optimiser's steps count from the first node on that has to
    /// share a rank with it. Elsewhere it is a node that all paths go through, near the beginning, and they count from there on, as
    /// the mean of its ranks.
    fn solve(&self, weights: &Weights, case: &Range<usize>, tail: f64, price: f64) -> Solved {
        // By part: how much all-reduces in it count, and backward steps still do.
        let mut reduces = vec![0.0; self.parts.len()];
        let mut backward = vec![1.0; self.parts.len()];
        let mut later = 0.0;
        for index in (0..self.parts.len()).rev() {
            backward[index] = 1.0 - later;
            later += weights.reduces[index];
            reduces[index] = later;
        }
        let anchor = self.least_of(case);
        let share = tail * (1.0 - later);
        let meets = |option: &BoundOption| option.gpus + anchor.gpus > self.gpus;
        // By node, option, and whether the optimiser's steps on some rank have begun to count.
        let mut values: Vec<Vec<[f64; 2]>> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            let (part, path) = (node.part, weights.paths[place]);
            let is_before = !self.is_chain && place < self.anchor;
            let value = |option: &BoundOption| {
                let update = (1.0 - later) * self.update(place, option, &anchor, tail);
                let full = path * backward[part] * option.backward_us;
                let rest = path * option.forward_us
                    + weights.work[part] * option.work_us / self.gpus * backward[part]
                    + reduces[part] * option.reduce_us * option.gpus / self.gpus
                    + update
                    + price * option.computing_us;
                if self.is_chain {
                    let not_yet = if meets(option) { f64::INFINITY } else { rest + (1.0 - share) * full };
                    [not_yet, rest + full]
                } else {
                    let full = if is_before { (1.0 - share) * full } else { full };
                    [rest + full; 2]
                }
            };
            values.push(node.options.iter().map(value).collect());
        }
        for (option, value) in values[self.anchor].iter_mut().enumerate() {
            if !case.contains(&option) {
                *value = [f64::INFINITY; 2];
            }
        }
        let begins = |option: &BoundOption| {
            if self.is_chain && meets(option) { share * anchor.update_us } else { f64::INFINITY }
        };
        // From the last node to the first, each adds its least value to that of the producer that its tree edge leads to.
        let mut taken: Vec<Vec<[(usize, usize); 2]>> = vec![Vec::new(); self.nodes.len()];
        for place in (0..self.nodes.len()).rev() {
            let node = &self.nodes[place];
            let Some(&producer) = node.producers.last() else { continue };
            let moves = self.moves(weights, place, producer);
            let backward = backward[node.part];
            let mut best_of = Vec::with_capacity(node.transfers.len());
            for (from, row) in node.transfers.iter().enumerate() {
                let from_gpus = self.nodes[producer].options[from].gpus;
                let mut best = [(f64::INFINITY, (0, 0)); 2];
                for (to, &(there, back)) in row.iter().enumerate() {
                    let gpu_us = self.transfer_gpu_us(from_gpus, node.options[to].gpus, (there, back));
                    let [not_yet, begun] = values[place][to];
                    let back_weight = |part: f64| moves * (there + part * backward * back) + price * gpu_us;
                    let before = if self.is_chain { 1.0 - share } else { 1.0 };
                    let begins = begun + begins(&node.options[to]) + back_weight(before);
                    for (state, value) in [(0, not_yet + back_weight(before)), (1, begins)] {
                        if value < best[0].0 {
                            best[0] = (value, (to, state));
                        }
                    }
                    let value = begun + back_weight(1.0);
                    if value < best[1].0 {
                        best[1] = (value, (to, 1));
                    }
                }
                for (value, best) in values[producer][from].iter_mut().zip(best) {
                    *value += best.0;
                }
                best_of.push(best.map(|(_, taken)| taken));
            }
            taken[place] = best_of;
        }
        self.trace(&values, &taken, begins)
    }

    /// The time in which ranks certainly do nothing but move samples: in a chain, those that wait for them have nothing else to do.
    fn transfer_gpu_us(&self, from_gpus: f64, to_gpus: f64, (there, back): (f64, f64)) -> f64 {
        if self.is_chain { from_gpus.max(to_gpus) * there + from_gpus * back } else { 0.0 }
    }

    /// How much of a node's update counts besides the anchor's own.
    fn update(&self, place: usize, option: &BoundOption, anchor: &BoundOption, tail: f64) -> f64 {
        if self.is_chain {
            let everywhere = option.gpus >= self.gpus && place != self.anchor;
            return if everywhere { option.update_us } else { 0.0 };
        }
        tail * option.update_us * (option.gpus + anchor.gpus - self.gpus).max(0.0) / anchor.gpus
    }

    /// Goes through the decisions of a solution from the first node on.
    fn trace(
        &self,
        values: &[Vec<[f64; 2]>],
        taken: &[Vec<[(usize, usize); 2]>],
        begins: impl Fn(&BoundOption) -> f64,
    ) -> Solved {
        let mut choice = vec![(0, 0); self.nodes.len()];
        let (mut value, mut gpu_us) = (0.0, 0.0);
        for (place, node) in self.nodes.iter().enumerate() {
            choice[place] = if let Some(&producer) = node.producers.last() {
                let (from, state) = choice[producer];
                let (to, state) = taken[place][from][state];
                let gpus = self.nodes[producer].options[from].gpus;
                gpu_us += self.transfer_gpu_us(gpus, node.options[to].gpus, node.transfers[from][to]);
                (to, state)
            } else {
                let mut least = (f64::INFINITY, (0, 0));
                for (option, &[not_yet, begun]) in values[place].iter().enumerate() {
                    let begun = begun + begins(&node.options[option]);
                    for (state, value) in [(0, not_yet), (1, begun)] {
                        if value < least.0 {
                            least = (value, (option, state));
                        }
                    }
                }
                value += least.0;
                least.1
            };
            gpu_us += node.options[choice[place].0].computing_us;
        }
        Solved { value, gpu_us, choice: choice.into_iter().map(|(option, _)| option).collect() }
    }

    /// How much of the paths certainly goes along an edge: all that goes through an end that has no other edge on that side.
    fn moves(&self, weights: &Weights, place: usize, producer: usize) -> f64 {
        let (from, to) = (weights.paths[producer], weights.paths[place]);
        match (self.nodes[producer].consumers, self.nodes[place].producers.len()) {
            (1, 1) => from.min(to),
            (1, _) => from,
            (_, 1) => to,
            _ => 0.0,
        }
    }
}

/// The least value of a weighted sum, and the options that give it.
struct Solved {
    value: f64,
    gpu_us: f64,
    choice: Vec<usize>,
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

fn longest_update(nodes: &[BoundNode]) -> usize {
    let longest = |node: &BoundNode| node.options.iter().map(|option| option.update_us).fold(0.0, f64::max);
    nodes.iter().map(longest).enumerate().fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a }).0
}

/// Of the nodes that all paths go through, before which little time is spent, the one that takes longest.
fn early_cut(nodes: &[BoundNode], parts: &[Vec<usize>]) -> usize {
    let time = |place: usize| {
        let of_option = |option: &BoundOption| option.forward_us + option.backward_us;
        nodes[place].options.first().map_or(0.0, of_option)
    };
    let early = 0.03 * (0..nodes.len()).map(time).sum::<f64>();
    let (mut spent, mut best) = (0.0, 0);
    for part in parts {
        if let [only] = part[..] {
            if spent <= early && time(only) > time(best) {
                best = only;
            }
        }
        spent += part.iter().map(|&place| time(place)).sum::<f64>();
    }
    best
}

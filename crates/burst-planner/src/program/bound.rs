//! How fast any arrangement can be at most.
//!
//! For every arrangement the iteration takes at least
//!
//! - the steps of any path through the graph, forward and backward, each with the larger share, and the least that moving
//!   samples between their GPU counts takes;
//! - instead of a path through the part between two nodes that all paths go through, all work of that part divided by all GPUs;
//! - instead of the backward steps before such a node, the all-reduces of all gradients from there on, divided over all GPUs;
//! - what the optimiser still has to do on a rank that has taken part in the last backward step.
//!
//! Any weights that add up to one make one sum of these, and with a price on GPU time the least value of that sum over all GPU
//! counts bounds the time within a budget (Lagrangian relaxation). The least value is found node by node along a tree of the
//! graph's edges, leaving out the others, which cost at least nothing. Weights move towards what is largest for the counts that
//! were found (M. Frank, P. Wolfe, Naval Research Logistics 3, 1956).

use super::costs::{Share, TrainingCosts};
use super::problem::{Structure, TrainingProblem};

/// How often weights are moved.
const ROUNDS: usize = 40;
/// How often the price is halved in on for given weights.
const PRICES: usize = 8;

/// All that a bound is made of.
#[derive(Debug, Clone)]
pub(super) struct Bound {
    gpus: f64,
    /// In an order in which producers come first.
    nodes: Vec<BoundNode>,
    /// By part between nodes that all paths go through: its nodes, by place; a node that all go through is a part by itself.
    parts: Vec<Vec<usize>>,
    /// Whether the graph is a chain: while samples move, the ranks that wait for them do nothing else.
    is_chain: bool,
}

#[derive(Debug, Clone)]
struct BoundNode {
    part: usize,
    /// Places of its producers. The bound counts what the last of them sends.
    producers: Vec<usize>,
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
struct Weights {
    /// By node: the part of the paths that go through it.
    paths: Vec<f64>,
    /// By part: how much its work counts.
    work: Vec<f64>,
    /// By part: how much it counts that all-reduces before it and in it come after its backward steps.
    reduces: Vec<f64>,
}

impl Bound {
    /// O(nodes x counts^2).
    pub(super) fn new<C: TrainingCosts>(problem: &TrainingProblem, structure: &Structure, costs: &C) -> Self {
        let mut places = vec![0; structure.order.len()];
        structure.order.iter().enumerate().for_each(|(place, &node)| places[node] = place);
        let counts = |node: usize| {
            let counts = problem.nodes[node].gpu_counts.iter().copied();
            let is_known = move |&count: &usize| {
                count <= problem.gpus && costs.compute(node, count, Share::Larger).is_some()
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
                let work_us =
                    sum(larger.forward_us, smaller.forward_us) + learns * sum(larger.backward_us, smaller.backward_us);
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
                    let least = |from, to| if from == to { 0.0 } else { costs.least_transfer(producer, from, to) };
                    (least(from, to), back * least(to, from))
                };
                counts(producer).iter().map(|&from| own.iter().map(|&to| both(from, to)).collect()).collect()
            });
            let options = own.into_iter().map(option).collect();
            BoundNode { part: 0, producers, options, transfers }
        };
        let mut nodes: Vec<BoundNode> = structure.order.iter().map(of_node).collect();
        let parts = parts(&mut nodes, structure, &places);
        let is_chain = parts.len() == nodes.len();
        Self { gpus: problem.gpus as f64, nodes, parts, is_chain }
    }

    /// No arrangement whose GPU time is within the budget is faster, microseconds.
    pub(super) fn within(&self, budget_us: f64) -> f64 {
        if self.nodes.iter().any(|node| node.options.is_empty()) {
            return 0.0;
        }
        let widest = self.nodes.first().map_or(0, |first| first.options.len());
        // Whatever the first node's count is.
        let of_count = |first: usize| self.within_from(first, budget_us);
        if self.is_chain {
            (0..widest).map(of_count).fold(f64::INFINITY, f64::min)
        } else {
            self.within_from(usize::MAX, budget_us)
        }
    }

    /// The same for arrangements whose first node takes this option, or any if there is none of that number.
    fn within_from(&self, first: usize, budget_us: f64) -> f64 {
        let mut weights = Weights {
            paths: vec![0.0; self.nodes.len()],
            work: vec![0.0; self.parts.len()],
            reduces: vec![0.0; self.parts.len()],
        };
        let fastest: Vec<Vec<f64>> = self
            .nodes
            .iter()
            .map(|node| {
                let times = node.options.iter().map(|option| option.forward_us + option.backward_us);
                vec![times.fold(f64::INFINITY, f64::min)]
            })
            .collect();
        let times: Vec<f64> = fastest.iter().map(|times| times[0]).collect();
        for part in &self.parts {
            self.critical(part, &times).0.into_iter().for_each(|node| weights.paths[node] = 1.0);
        }
        let mut best: f64 = 0.0;
        let mut price = 0.0;
        for round in 0..ROUNDS {
            let (bound, found, used) = self.priced(&weights, first, budget_us, &mut price);
            best = best.max(bound);
            self.shift(&mut weights, &found, &used, 2.0 / (round as f64 + 3.0));
        }
        best
    }

    /// The best bound of these weights over all prices of GPU time, and a mixture of the counts on both sides of the budget.
    fn priced(
        &self,
        weights: &Weights,
        first: usize,
        budget_us: f64,
        price: &mut f64,
    ) -> (f64, [Vec<usize>; 2], [f64; 2]) {
        let free = self.solve(weights, first, 0.0);
        if free.gpu_us <= budget_us {
            *price = 0.0;
            return (free.value, [free.choice.clone(), free.choice], [1.0, 0.0]);
        }
        let (mut low, mut over) = (0.0, free);
        let mut high = if *price > 0.0 { *price * 2.0 } else { 1.0 / self.gpus };
        let mut within = self.solve(weights, first, high);
        for _ in 0..40 {
            if within.gpu_us <= budget_us {
                break;
            }
            (low, over) = (high, within);
            high *= 4.0;
            within = self.solve(weights, first, high);
        }
        let bound = |solved: &Solved, price: f64| solved.value - price * budget_us;
        let mut best = bound(&over, low).max(bound(&within, high));
        if within.gpu_us > budget_us {
            // No counts keep the budget.
            return (best, [within.choice.clone(), within.choice], [1.0, 0.0]);
        }
        for _ in 0..PRICES {
            let middle = f64::midpoint(low, high);
            let solved = self.solve(weights, first, middle);
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
    fn shift(&self, weights: &mut Weights, found: &[Vec<usize>; 2], used: &[f64; 2], step: f64) {
        let mix = |node: usize, figure: &dyn Fn(&BoundOption) -> f64| -> f64 {
            found.iter().zip(used).map(|(choice, part)| part * figure(&self.nodes[node].options[choice[node]])).sum()
        };
        let forward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.forward_us)).collect();
        let backward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.backward_us)).collect();
        let both: Vec<f64> = forward.iter().zip(&backward).map(|(forward, backward)| forward + backward).collect();
        let (mut backward_of, mut reduce_of) = (vec![0.0; self.parts.len()], vec![0.0; self.parts.len()]);
        for (index, part) in self.parts.iter().enumerate() {
            let (path, length) = self.critical(part, &both);
            let work: f64 = part.iter().map(|&node| mix(node, &|o| o.work_us)).sum::<f64>() / self.gpus;
            let on_path = if work > length { 0.0 } else { step };
            for &node in part {
                weights.paths[node] *= 1.0 - step;
            }
            path.iter().for_each(|&node| weights.paths[node] += on_path);
            weights.work[index] = weights.work[index] * (1.0 - step) + step - on_path;
            backward_of[index] = path.iter().map(|&node| backward[node]).sum();
            reduce_of[index] =
                part.iter().map(|&node| mix(node, &|o| o.reduce_us * o.gpus / self.gpus)).sum();
        }
        // All-reduces of parts up to one, instead of the backward steps before it.
        let (mut best, mut gain, mut sum) = (None, 0.0, 0.0);
        for index in 0..self.parts.len() {
            sum += reduce_of[index];
            let hidden: f64 = backward_of[..index].iter().sum();
            if sum - hidden > gain {
                (best, gain) = (Some(index), sum - hidden);
            }
        }
        weights.reduces.iter_mut().for_each(|weight| *weight *= 1.0 - step);
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

    /// The least value of the weighted sum with a price on GPU time, over all counts.
    fn solve(&self, weights: &Weights, first: usize, price: f64) -> Solved {
        // By part: how much all-reduces in it count, and backward steps still do.
        let mut reduces = vec![0.0; self.parts.len()];
        let mut later = 0.0;
        let mut backward = vec![1.0; self.parts.len()];
        for index in (0..self.parts.len()).rev() {
            backward[index] = 1.0 - later;
            later += weights.reduces[index];
            reduces[index] = later;
        }
        let tail = 1.0 - later;
        let first_gpus = self.nodes[0].options.get(first).map(|option| option.gpus);
        let largest_update = self.largest_update();
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            let (part, path) = (node.part, weights.paths[place]);
            let value = |option: &BoundOption| {
                let stays = first_gpus.is_some_and(|first| option.gpus + first > self.gpus);
                let everywhere = stays && option.gpus >= self.gpus;
                let update = if everywhere || (stays && place == largest_update) { option.update_us } else { 0.0 };
                path * (option.forward_us + backward[part] * option.backward_us)
                    + weights.work[part] * option.work_us / self.gpus * backward[part].min(1.0)
                    + reduces[part] * option.reduce_us * option.gpus / self.gpus
                    + tail * update
                    + price * option.computing_us
            };
            values.push(node.options.iter().map(value).collect());
        }
        if let Some(only) = values[0].get(first).copied() {
            values[0].iter_mut().for_each(|value| *value = f64::INFINITY);
            values[0][first] = only;
        }
        // From the last node to the first, each adds its least value to that of the producer that its tree edge leads to.
        let mut taken: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for place in (0..self.nodes.len()).rev() {
            let node = &self.nodes[place];
            let Some(&producer) = node.producers.last() else { continue };
            let moves = weights.paths[place].min(weights.paths[producer]);
            let moves = if self.is_chain { moves } else { self.moves(weights, place, producer) };
            let backward = backward[node.part];
            let from_gpus: Vec<f64> = self.nodes[producer].options.iter().map(|option| option.gpus).collect();
            let own = std::mem::take(&mut values[place]);
            let mut best_of = Vec::with_capacity(from_gpus.len());
            for (from, row) in node.transfers.iter().enumerate() {
                let cost = |(to, &(there, back)): (usize, &(f64, f64))| {
                    let gpu_us = if self.is_chain {
                        from_gpus[from].max(node.options[to].gpus) * there + from_gpus[from] * back
                    } else {
                        0.0
                    };
                    own[to] + moves * (there + backward * back) + price * gpu_us
                };
                let best = row.iter().enumerate().map(cost).enumerate();
                let (to, least) = best.fold((0, f64::INFINITY), |a, b| if b.1 < a.1 { b } else { a });
                values[producer][from] += least;
                best_of.push(to);
            }
            values[place] = own;
            taken[place] = best_of;
        }
        let mut choice = vec![0; self.nodes.len()];
        let (mut value, mut gpu_us) = (0.0, 0.0);
        for place in 0..self.nodes.len() {
            let node = &self.nodes[place];
            choice[place] = if let Some(&producer) = node.producers.last() {
                let (from, to) = (choice[producer], taken[place][choice[producer]]);
                if self.is_chain {
                    let (there, back) = node.transfers[from][to];
                    let gpus = self.nodes[producer].options[from].gpus;
                    gpu_us += gpus.max(node.options[to].gpus) * there + gpus * back;
                }
                to
            } else {
                let least = (0..values[place].len()).min_by(|&a, &b| values[place][a].total_cmp(&values[place][b]));
                let least = least.unwrap_or(0);
                value += values[place][least];
                least
            };
            gpu_us += node.options[choice[place]].computing_us;
        }
        Solved { value, gpu_us, choice }
    }

    /// How much of the paths certainly goes along an edge: what goes through its end and has no other way there.
    fn moves(&self, weights: &Weights, place: usize, producer: usize) -> f64 {
        if self.nodes[place].producers.len() == 1 { weights.paths[place].min(weights.paths[producer]) } else { 0.0 }
    }

    fn largest_update(&self) -> usize {
        let longest = |node: &BoundNode| node.options.iter().map(|option| option.update_us).fold(0.0, f64::max);
        let updates = self.nodes.iter().map(longest).enumerate();
        updates.fold((0, 0.0), |a, b| if b.1 > a.1 { b } else { a }).0
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
        let farthest = structure.consumers[node].iter().map(|&consumer| places[consumer]).max().unwrap_or(count);
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

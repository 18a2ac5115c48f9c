//! The least value of the weighted sum over all GPU counts.

use std::ops::Range;

use super::weights::Weights;
use super::{Bound, BoundOption};

/// The least value of a weighted sum, and the options that give it.
pub(super) struct Solved {
    pub(super) value: f64,
    pub(super) gpu_us: f64,
    pub(super) choice: Vec<usize>,
}

impl Bound {
    /// The least value of the weighted sum with a price on GPU time, over all counts with which the anchor takes one of its
    /// options `case`.
    ///
    /// In a chain the anchor is the node with the longest update, and the optimiser's steps count from the first node on that has to
    /// share a rank with it. Elsewhere it is a node that all paths go through, near the beginning, and they count from there on, as
    /// the mean of its ranks.
    pub(super) fn solve(&self, weights: &Weights, case: &Range<usize>, tail: f64, price: f64) -> Solved {
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
    pub(super) fn update(&self, place: usize, option: &BoundOption, anchor: &BoundOption, tail: f64) -> f64 {
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

    /// What any of some options of the anchor has at least: the smallest count shares ranks with the fewest nodes.
    pub(super) fn least_of(&self, case: &Range<usize>) -> BoundOption {
        let options = &self.nodes[self.anchor].options[case.clone()];
        let update_us = options.iter().map(|option| option.update_us).fold(f64::INFINITY, f64::min);
        BoundOption { update_us, ..options[0] }
    }
}

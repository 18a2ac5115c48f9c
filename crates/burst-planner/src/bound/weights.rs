//! Weights of the terms of the lower bound of a graph, and their updates.
//!
//! The bound is the minimum of a weighted sum of times: of paths through the graph, of the work of
//! each part, of all-reduces and of updates. A *part* is an articulation node (contained in all
//! paths) or the nodes between two of them. The *work* of a part is the computing time of its steps
//! divided by the number of GPUs. An *option* is a GPU count of a node with its costs, a *place*
//! the index of a node in topological order.

use std::ops::Range;

use super::{Bound, BoundNode, BoundOption};

/// Weights of the terms of the sum, from 0 to 1.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Weights {
    /// By place: total weight of the paths that contain the node.
    pub(super) paths: Vec<f64>,
    /// By part: weight of its work. Together with the weights of the paths through the part it adds
    /// up to 1.
    pub(super) work: Vec<f64>,
    /// By part: weight of the cycles that end with the all-reduces of all gradients before and in
    /// the part, after its backward steps.
    pub(super) reduces: Vec<f64>,
}

impl Bound {
    /// Returns the initial weights: 1 for the longest path through each part by the minimum
    /// durations of steps, and 0 for everything else.
    pub(super) fn first_weights(&self) -> Weights {
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

    /// Moves a fraction `step_size` of the weights to the terms that are largest for a mixture of
    /// choices. `case` is a range of the anchor's options by index, `anchor_weight` the weight of
    /// the cycles that end with the anchor's updates. `found` has the choices, each with the option
    /// of each node by place, and their fractions, which add up to 1.
    pub(super) fn shift(
        &self,
        weights: &mut Weights,
        (case, anchor_weight): (&Range<usize>, f64),
        found: &[(Vec<usize>, f64)],
        step_size: f64,
    ) {
        let mix = |node: usize, figure: &dyn Fn(&BoundOption) -> f64| -> f64 {
            found.iter().map(|(choice, part)| part * figure(&self.nodes[node].options[choice[node]])).sum()
        };
        let forward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.forward_us)).collect();
        let backward: Vec<f64> = (0..self.nodes.len()).map(|node| mix(node, &|o| o.backward_us)).collect();
        let both: Vec<f64> =
            forward.iter().zip(&backward).map(|(forward, backward)| forward + backward).collect();
        let anchor = self.min_option(case);
        let (mut backward_of, mut reduce_of) = (vec![0.0; self.parts.len()], vec![0.0; self.parts.len()]);
        for (index, part) in self.parts.iter().enumerate() {
            let (path, length) = self.critical(part, &both);
            let work: f64 = part.iter().map(|&node| mix(node, &|o| o.work_us())).sum::<f64>() / self.gpus;
            let on_path = if work > length && self.contains_all_work(index) { 0.0 } else { step_size };
            for &node in part {
                weights.paths[node] *= 1.0 - step_size;
            }
            for &node in &path {
                weights.paths[node] += on_path;
            }
            weights.work[index] = weights.work[index] * (1.0 - step_size) + step_size - on_path;
            backward_of[index] = path.iter().map(|&node| backward[node]).sum();
            reduce_of[index] =
                part.iter().map(|&node| mix(node, &|o| o.reduce_us * self.shared(o, &anchor))).sum();
        }
        // All-reduces of parts up to one replace the backward steps before it and the updates.
        let updates: f64 = (0..self.nodes.len())
            .map(|node| mix(node, &|o| anchor_weight * o.update_us * self.shared(o, &anchor)))
            .sum();
        let (mut best, mut gain, mut sum) = (None, updates, 0.0);
        let first = self.nodes[self.anchor].part;
        for index in 0..self.parts.len() {
            let own = if self.parts[index].len() == 1 { reduce_of[index] } else { 0.0 };
            let hidden: f64 = backward_of[..index].iter().sum();
            if self.has_anchor && index >= first && sum + own - hidden > gain {
                (best, gain) = (Some(index), sum + own - hidden);
            }
            sum += reduce_of[index];
        }
        for weight in &mut weights.reduces {
            *weight *= 1.0 - step_size;
        }
        if let Some(best) = best {
            weights.reduces[best] += step_size;
        }
    }

    /// Returns whether all work of a part, by its index, is done while the cycle of a rank passes
    /// through it: whether the part before is an articulation node that needs a gradient.
    pub(super) fn contains_all_work(&self, part: usize) -> bool {
        let before = part.checked_sub(1).map(|before| &self.parts[before][..]);
        matches!(before, Some(&[cut]) if self.nodes[cut].needs_gradient)
    }

    /// Returns the longest path through a part for these durations, and its length.
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
}

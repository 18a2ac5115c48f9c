//! Weights of the terms of the sum, and their updates.

use std::ops::Range;

use super::{Bound, BoundNode, BoundOption};

/// Weights of the terms of the sum.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Weights {
    /// By node: the fraction of paths that contain it.
    pub(super) paths: Vec<f64>,
    /// By part: weight of its work.
    pub(super) work: Vec<f64>,
    /// By part: weight of the all-reduces before it and in it, after its backward steps.
    pub(super) reduces: Vec<f64>,
}

impl Bound {
    /// Returns weights of the fastest path through each part.
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

    /// Moves weights to the largest terms for a mixture of choices.
    pub(super) fn shift(
        &self,
        weights: &mut Weights,
        (case, tail): (&Range<usize>, f64),
        found: &[(Vec<usize>, f64)],
        step: f64,
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
            let on_path = if work > length && self.is_window(index) { 0.0 } else { step };
            for &node in part {
                weights.paths[node] *= 1.0 - step;
            }
            for &node in &path {
                weights.paths[node] += on_path;
            }
            weights.work[index] = weights.work[index] * (1.0 - step) + step - on_path;
            backward_of[index] = path.iter().map(|&node| backward[node]).sum();
            reduce_of[index] =
                part.iter().map(|&node| mix(node, &|o| o.reduce_us * self.shared(o, &anchor))).sum();
        }
        // All-reduces of parts up to one replace the backward steps before it and the updates.
        let updates: f64 = (0..self.nodes.len())
            .map(|node| mix(node, &|o| tail * o.update_us * self.shared(o, &anchor)))
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
            *weight *= 1.0 - step;
        }
        if let Some(best) = best {
            weights.reduces[best] += step;
        }
    }

    /// Returns whether all work of a part is done while one cycle passes through it.
    pub(super) fn is_window(&self, part: usize) -> bool {
        let before = part.checked_sub(1).map(|before| &self.parts[before][..]);
        matches!(before, Some(&[cut]) if self.nodes[cut].learns)
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

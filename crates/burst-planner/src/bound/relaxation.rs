//! Minimum of the weighted sum over all GPU counts, for graphs other than chains.
//!
//! A *part* is an articulation node (contained in all paths) or the nodes between two of them. An
//! *option* is a GPU count of a node with its costs. The *anchor* is the node on whose ranks the
//! updates are counted, and a *case* is a range of the indices of its options.

use std::ops::Range;

use super::prices::Solved;
use super::weights::Weights;
use super::{Bound, BoundOption};

/// Weights of steps and all-reduces by part, and of updates, from 0 to 1.
pub(super) struct Factors {
    /// By part: weight of its forward steps.
    pub(super) forward: Vec<f64>,
    /// By part: weight of its backward steps.
    pub(super) backward: Vec<f64>,
    /// By part: weight of its all-reduces.
    pub(super) reduces: Vec<f64>,
    /// Weight of cycles that end with updates on the anchor's ranks.
    pub(super) updates: f64,
}

impl Bound {
    /// Returns the weights of steps, all-reduces and updates that follow from `weights`.
    /// `anchor_weight` is the weight of cycles of the anchor's ranks, relative to those of other
    /// ranks: parts before the anchor are only in the latter. A cycle is the time from a rank's
    /// first step of an iteration to its last update.
    pub(super) fn factors(&self, weights: &Weights, anchor_weight: f64) -> Factors {
        let parts = self.parts.len();
        let (mut backward, mut reduces) = (vec![1.0; parts], vec![0.0; parts]);
        let mut later = 0.0;
        for (index, part) in self.parts.iter().enumerate().rev() {
            backward[index] = 1.0 - later;
            // All-reduces of a part with branches can start before it ends.
            let own = if part.len() == 1 { weights.reduces[index] } else { 0.0 };
            reduces[index] = later + own;
            later += weights.reduces[index];
        }
        let mut forward = vec![1.0; parts];
        for index in 0..self.nodes[self.anchor].part {
            forward[index] = (1.0 - later) * (1.0 - anchor_weight);
            backward[index] = forward[index];
        }
        Factors { forward, backward, reduces, updates: anchor_weight * (1.0 - later) }
    }

    /// Returns the minimum of the weighted sum plus the GPU time at `price` microseconds per
    /// GPU-microsecond, over all choices of one GPU count per node in which the anchor uses an
    /// option in `case`. `anchor_weight` is that of [`factors`](Self::factors). O(nodes x
    /// counts^2).
    pub(super) fn solve(
        &self,
        weights: &Weights,
        case: &Range<usize>,
        anchor_weight: f64,
        price: f64,
    ) -> Solved {
        let factors = self.factors(weights, anchor_weight);
        let anchor = self.min_option(case);
        // By node and option.
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(self.nodes.len());
        for (place, node) in self.nodes.iter().enumerate() {
            let (part, path) = (node.part, weights.paths[place]);
            let value = |option: &BoundOption| {
                let shared = self.shared(option, &anchor);
                path * (factors.forward[part] * option.forward_us
                    + factors.backward[part] * option.backward_us)
                    + weights.work[part] * option.work_us() / self.gpus * factors.backward[part]
                    + shared * (factors.reduces[part] * option.reduce_us + factors.updates * option.update_us)
                    + price * option.computing_us
            };
            values.push(node.options.iter().map(value).collect());
        }
        for (option, value) in values[self.anchor].iter_mut().enumerate() {
            if !case.contains(&option) {
                *value = f64::INFINITY;
            }
        }
        // From the last node to the first, each adds its minimum to that of the producer of its
        // tree edge.
        let mut taken: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for place in (0..self.nodes.len()).rev() {
            let node = &self.nodes[place];
            let Some(&producer) = node.producers.last() else { continue };
            let moves = self.moves(weights, place, producer);
            let to_producer = self.nodes[producer].part;
            let (forward, backward) = (factors.forward[to_producer], factors.backward[to_producer]);
            let backward = backward.min(factors.backward[node.part]);
            let mut best_of = Vec::with_capacity(node.transfers.len());
            for (from, row) in node.transfers.iter().enumerate() {
                let offers = row.iter().zip(&values[place]).enumerate();
                let offers = offers.map(|(to, (&(there, back), value))| {
                    (value + moves * (forward * there + backward * back), to)
                });
                let best = offers.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a });
                values[producer][from] += best.0;
                best_of.push(best.1);
            }
            taken[place] = best_of;
        }
        self.trace(&values, &taken)
    }

    /// Returns the minimum fraction of the anchor's ranks that a node with this option is on, from
    /// 0 to 1.
    pub(super) fn shared(&self, option: &BoundOption, anchor: &BoundOption) -> f64 {
        (option.gpus + anchor.ranks - self.gpus).max(0.0) / anchor.ranks
    }

    /// Traces a solution from the first node on.
    fn trace(&self, values: &[Vec<f64>], taken: &[Vec<usize>]) -> Solved {
        let mut choice = vec![0; self.nodes.len()];
        let (mut value, mut gpu_us) = (0.0, 0.0);
        for (place, node) in self.nodes.iter().enumerate() {
            choice[place] = if let Some(&producer) = node.producers.last() {
                taken[place][choice[producer]]
            } else {
                let options = values[place].iter().enumerate();
                let minimum = options
                    .fold((f64::INFINITY, 0), |a, (b, &value)| if value < a.0 { (value, b) } else { a });
                value += minimum.0;
                minimum.1
            };
            gpu_us += node.options[choice[place]].computing_us;
        }
        Solved { value, gpu_us, choice }
    }

    /// Returns the fraction of paths that necessarily contain an edge: all that contain an end
    /// without other edges on that side.
    fn moves(&self, weights: &Weights, place: usize, producer: usize) -> f64 {
        let (from, to) = (weights.paths[producer], weights.paths[place]);
        match (self.nodes[producer].consumers, self.nodes[place].producers.len()) {
            (1, 1) => from.min(to),
            (1, _) => from,
            (_, 1) => to,
            _ => 0.0,
        }
    }

    /// Returns the first of the anchor's options in a case, which bounds all of them: the smallest
    /// count shares ranks with the fewest nodes. `case` is not empty.
    pub(super) fn min_option(&self, case: &Range<usize>) -> BoundOption {
        let options = &self.nodes[self.anchor].options[case.clone()];
        options[0]
    }
}

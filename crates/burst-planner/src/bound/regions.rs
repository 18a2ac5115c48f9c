//! Lower bounds for the region between two articulation nodes: for each pair of their options, the
//! minimum of a weighted sum.
//!
//! An *articulation node* is contained in all paths. A *part* is such a node, or the nodes between
//! two of them (a *region*). An *option* is a GPU count of a node with its costs, a *place* the
//! index of a node in topological order. The *anchor* is the node on whose ranks the updates are
//! counted. Pairs of numbers are for the forward and the backward pass.

use super::relaxation::Factors;
use super::{Bound, BoundOption, Transfers};

/// Number of combinations of options that count as one operation, as they are examined at once.
const COMBINATIONS_AT_ONCE: usize = 8;

/// The nodes between two articulation nodes.
pub(super) struct Region {
    /// Index of its part.
    pub(super) part: usize,
    /// Place of its first node. Its nodes are at the places `begin..end`.
    pub(super) begin: usize,
    /// Place after its last node.
    pub(super) end: usize,
    /// Place of the articulation node before it, if any.
    entry: Option<usize>,
    /// Place of the articulation node after it, if any.
    exit: Option<usize>,
    /// All edges to its nodes and to its exit, in ascending order of their ends.
    pub(super) edges: Vec<Edge>,
}

/// An edge in a region, or to one of its ends.
pub(super) struct Edge {
    /// Place of the producer.
    pub(super) from: usize,
    /// Place of the consumer.
    pub(super) to: usize,
    kind: EdgeKind,
}

/// Role of an edge in the weighted sum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EdgeKind {
    /// To a node from its last producer.
    Tree,
    /// To the exit, from this one of its producers.
    Exit(usize),
    /// Not counted: its minimum is 0.
    Free,
}

/// Weights in a region. In each pass, the weights of paths and of work add up to 1.
#[derive(Clone)]
pub(super) struct Flow {
    /// By node of the region: total weight of the paths that contain it, forward and backward.
    pub(super) nodes: Vec<(f64, f64)>,
    /// By edge of the region: total weight of the paths that contain it, forward and backward.
    pub(super) edges: Vec<(f64, f64)>,
    /// Weights of the mean computing time over all GPUs, forward and backward.
    pub(super) work: (f64, f64),
}

/// Parameters of the weighted sum that do not depend on the flow.
pub(super) struct Terms<'t> {
    /// Weights of steps, all-reduces and updates, by part.
    pub(super) factors: &'t Factors,
    /// Option of the anchor; its GPU count determines how many of its ranks other nodes share.
    pub(super) anchor: BoundOption,
    /// Price of GPU time, microseconds per GPU-microsecond.
    pub(super) price: f64,
}

/// Minimum sums of a region, microseconds, and data to trace the options that attain them.
#[derive(Default)]
pub(super) struct Solution {
    /// Number of options of the exit; 1 without an exit.
    exits: usize,
    /// By option of the entry, then option of the exit, row by row. A region without entry or exit
    /// has one row or one column.
    pub(super) minimum: Vec<f64>,
    /// By node, its option and that of the exit: the minimum of it and its subtree.
    below: Vec<Vec<f64>>,
}

impl Bound {
    /// Returns the regions of the graph: all parts of more than one node. O(nodes + edges).
    pub(super) fn regions(&self) -> Vec<Region> {
        let parts = self.parts.iter().enumerate().filter(|(_, part)| part.len() > 1);
        parts.filter_map(|(index, part)| self.region(index, part)).collect()
    }

    fn region(&self, index: usize, part: &[usize]) -> Option<Region> {
        let (&begin, &last) = (part.first()?, part.last()?);
        let end = last + 1;
        let (entry, exit) = (begin.checked_sub(1), (end < self.nodes.len()).then_some(end));
        let mut edges = Vec::new();
        for to in (begin..end).chain(exit) {
            let producers = &self.nodes[to].producers;
            for (place, &from) in producers.iter().enumerate() {
                let is_last = place + 1 == producers.len();
                let kind = match (Some(to) == exit, is_last) {
                    (true, _) => EdgeKind::Exit(place),
                    (false, true) => EdgeKind::Tree,
                    (false, false) => EdgeKind::Free,
                };
                edges.push(Edge { from, to, kind });
            }
        }
        Some(Region { part: index, begin, end, entry, exit, edges })
    }

    /// Returns the transfers along an edge, if the sum counts it.
    fn transfers_of(&self, edge: &Edge) -> Option<&Transfers> {
        let node = &self.nodes[edge.to];
        match edge.kind {
            EdgeKind::Tree => Some(&node.transfers),
            EdgeKind::Exit(place) => Some(node.other_transfers.get(place).unwrap_or(&node.transfers)),
            EdgeKind::Free => None,
        }
    }

    /// Returns the transfer durations along an edge, forward and backward, microseconds; 0 if the
    /// sum does not count the edge. `choice` has the index of the option of each node, by place.
    pub(super) fn moved_along(&self, edge: &Edge, choice: &[usize]) -> (f64, f64) {
        self.transfers_of(edge).map_or((0.0, 0.0), |transfers| transfers[choice[edge.from]][choice[edge.to]])
    }

    /// Returns the number of combinations of options that a solution of a region examines.
    pub(super) fn combinations(&self, region: &Region) -> usize {
        let options = |edge: &Edge| self.nodes[edge.from].options.len() * self.nodes[edge.to].options.len();
        region.edges.iter().map(options).sum::<usize>() * self.options_of(region.exit) / COMBINATIONS_AT_ONCE
    }

    fn options_of(&self, end: Option<usize>) -> usize {
        end.map_or(1, |end| self.nodes[end].options.len())
    }

    /// Returns the minimum of the weighted sum of a region for each pair of options at its ends.
    /// `flow` has the weights in the region. O(nodes x counts^3).
    pub(super) fn solve_region(&self, region: &Region, flow: &Flow, terms: &Terms<'_>) -> Solution {
        let (entries, exits) = (self.options_of(region.entry), self.options_of(region.exit));
        let mut below: Vec<Vec<f64>> = Vec::with_capacity(region.end - region.begin);
        for (place, weights) in (region.begin..region.end).zip(&flow.nodes) {
            let mut values = Vec::with_capacity(self.nodes[place].options.len() * exits);
            for option in &self.nodes[place].options {
                let value = self.own_value(region.part, option, *weights, flow.work, terms);
                values.extend(std::iter::repeat_n(value, exits));
            }
            below.push(values);
        }
        let mut minimum = vec![0.0; entries * exits];
        // From the last edge to the first, the subtree of a node is complete before it is added to
        // its producer.
        for (edge, &weight) in region.edges.iter().zip(&flow.edges).rev() {
            let Some(transfers) = self.transfers_of(edge) else { continue };
            let factors = self.edge_factors(edge, weight, terms.factors);
            let from_entry = edge.from < region.begin;
            let at_exit = edge.to >= region.end;
            let hanging =
                if at_exit { None } else { Some(std::mem::take(&mut below[edge.to - region.begin])) };
            let target = if from_entry { &mut minimum } else { &mut below[edge.from - region.begin] };
            for (row, sums) in transfers.iter().zip(target.chunks_mut(exits)) {
                match &hanging {
                    None => {
                        for (sum, &(there, back)) in sums.iter_mut().zip(row) {
                            *sum += factors.0 * there + factors.1 * back;
                        }
                    }
                    Some(hanging) => add_min(sums, row, factors, hanging),
                }
            }
            if let Some(hanging) = hanging {
                below[edge.to - region.begin] = hanging;
            }
        }
        // A node without a counted edge starts its own tree.
        for place in region.begin..region.end {
            if self.nodes[place].producers.is_empty() {
                for sums in minimum.chunks_mut(exits) {
                    add_min(sums, &[], (0.0, 0.0), &below[place - region.begin]);
                }
            }
        }
        Solution { exits, minimum, below }
    }

    /// Sets the options of a region's nodes in `choice` to those that attain the minimum, for the
    /// options of the region's ends in `choice`. `choice` has the index of the option of each node,
    /// by place; `solution` is that of [`solve_region`](Self::solve_region) with the same `flow`
    /// and `terms`.
    pub(super) fn trace_region(
        &self,
        region: &Region,
        flow: &Flow,
        terms: &Terms<'_>,
        solution: &Solution,
        choice: &mut [usize],
    ) {
        let exit = region.exit.map_or(0, |exit| choice[exit]);
        let best = |place: usize, moved: &dyn Fn(usize) -> f64| {
            let below = solution.below[place - region.begin].iter().skip(exit).step_by(solution.exits);
            let values = below.enumerate().map(|(option, &value)| (moved(option) + value, option));
            values.fold((f64::INFINITY, 0), |a, b| if b.0 < a.0 { b } else { a }).1
        };
        for place in (region.begin..region.end).filter(|&place| self.nodes[place].producers.is_empty()) {
            choice[place] = best(place, &|_| 0.0);
        }
        for (edge, &weight) in
            region.edges.iter().zip(&flow.edges).filter(|(edge, _)| edge.kind == EdgeKind::Tree)
        {
            let factors = self.edge_factors(edge, weight, terms.factors);
            let row = &self.nodes[edge.to].transfers[choice[edge.from]];
            choice[edge.to] = best(edge.to, &|option| factors.0 * row[option].0 + factors.1 * row[option].1);
        }
    }

    /// Returns the weights of transfers along an edge, forward and backward.
    fn edge_factors(&self, edge: &Edge, weight: (f64, f64), factors: &Factors) -> (f64, f64) {
        let (from, to) = (self.nodes[edge.from].part, self.nodes[edge.to].part);
        (weight.0 * factors.forward[from], weight.1 * factors.backward[from].min(factors.backward[to]))
    }

    /// Returns the terms of a node in the weighted sum, microseconds, if it is in part `part` and
    /// uses `option`. `paths` and `work` are the weights of its steps and of their mean over all
    /// GPUs.
    pub(super) fn own_value(
        &self,
        part: usize,
        option: &BoundOption,
        paths: (f64, f64),
        work: (f64, f64),
        terms: &Terms<'_>,
    ) -> f64 {
        let Terms { factors, anchor, price } = terms;
        let (forward, backward) = (factors.forward[part], factors.backward[part]);
        let mean = option.gpus / self.gpus * backward;
        let shared = self.shared(option, anchor);
        (paths.0 * forward + work.0 * mean) * option.forward_us
            + (paths.1 * backward + work.1 * mean) * option.backward_us
            + shared * (factors.reduces[part] * option.reduce_us + factors.updates * option.update_us)
            + price * option.computing_us
    }
}

/// Adds to each sum the minimum of a subtree over the options of its root. `row` has the transfers
/// to them; there are none if it is empty.
fn add_min(sums: &mut [f64], row: &[(f64, f64)], factors: (f64, f64), hanging: &[f64]) {
    let mut minimum = vec![f64::INFINITY; sums.len()];
    for (option, values) in hanging.chunks(sums.len()).enumerate() {
        let (there, back) = row.get(option).copied().unwrap_or_default();
        let moved = factors.0 * there + factors.1 * back;
        for (minimum, value) in minimum.iter_mut().zip(values) {
            let value = moved + value;
            // Without a branch, the compiler vectorizes the comparison.
            *minimum = if value < *minimum { value } else { *minimum };
        }
    }
    for (sum, minimum) in sums.iter_mut().zip(minimum) {
        *sum += minimum;
    }
}

//! Lower bounds of transfers between the nodes at both ends of an edge.
//!
//! Results are indexed by GPU count of the producer, then by that of the consumer, each by its
//! index among the counts of the node. Pairs are durations of moving the output forward and its
//! gradient back, microseconds. The first is 0 if the consumer needs no gradient, the second if
//! either node needs none. The *larger* shard of a batch that does not divide evenly has one sample
//! more than the *smaller* one.

use std::cell::RefCell;
use std::sync::Arc;

use super::Transfers;
use crate::NodeId;
use crate::costs::{CostModel, bounds_of};
use crate::problem::ProblemGraph;

/// Number of ranks of a subset up to which the number with the larger shard is distinguished.
const MAX_CHOSEN: usize = 16;
/// Maximum number of results that others are compared with.
const MAX_KNOWN: usize = 64;

/// Subsets of a list of ranks for which a transfer has the same minimum duration. They differ in
/// the number of their ranks that have the larger shard of the list.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subset {
    /// Minimum number of ranks of the subset with the larger shard.
    pub(super) min_larger: f64,
    /// Maximum number of ranks of the subset with the larger shard, inclusive.
    pub(super) max_larger: f64,
    /// Minimum duration of the transfer from the list to the subset, or back, microseconds.
    pub(super) transfer_us: f64,
}

/// Lower bounds of transfers between nodes, by GPU counts. Nodes are given by their indices in the
/// problem.
pub(super) struct TransferBounds<'m> {
    /// Graph of the problem.
    pub(super) structure: &'m ProblemGraph,
    /// Cost model of the problem.
    pub(super) costs: &'m dyn CostModel,
    /// Returns the GPU counts of a node for which the cost model has times, in ascending order.
    pub(super) counts: &'m dyn Fn(usize) -> Vec<usize>,
    /// Results so far, at most [`MAX_KNOWN`]: repeated blocks share theirs.
    pub(super) known: RefCell<Vec<Transfers>>,
}

impl TransferBounds<'_> {
    /// Returns a bound for each pair of counts. Transfers between nodes without gradients are not
    /// counted: they can run for the next iteration meanwhile.
    fn both_ways(&self, producer: usize, node: usize, minimum: impl Fn(usize, usize) -> f64) -> Transfers {
        let learns = if self.structure.needs_gradient[node] { 1.0 } else { 0.0 };
        let back = if self.structure.needs_gradient[producer] { learns } else { 0.0 };
        let both = |from: usize, to: usize| (learns * minimum(from, to), back * minimum(to, from));
        let own = (self.counts)(node);
        let table: Vec<Vec<(f64, f64)>> = (self.counts)(producer)
            .iter()
            .map(|&from| own.iter().map(|&to| both(from, to)).collect())
            .collect();
        let mut known = self.known.borrow_mut();
        if let Some(same) = known.iter().find(|other| ***other == table) {
            return Arc::clone(same);
        }
        let table = Arc::new(table);
        if known.len() < MAX_KNOWN {
            known.push(Arc::clone(&table));
        }
        table
    }

    fn min_us(&self, producer: usize, from: usize, to: usize) -> f64 {
        if from == to { 0.0 } else { bounds_of(self.costs).min_transfer(NodeId(producer), from, to) }
    }

    /// Returns the bounds for any ranks; 0 between equal counts, as the lists can be equal.
    pub(super) fn any_ranks(&self, producer: usize, node: usize) -> Transfers {
        self.both_ways(producer, node, |from, to| self.min_us(producer, from, to))
    }

    /// Returns the bounds if neither list of ranks contains the other.
    pub(super) fn apart(&self, producer: usize, node: usize) -> Transfers {
        let apart = |from, to| bounds_of(self.costs).min_transfer_unnested(NodeId(producer), from, to);
        self.both_ways(producer, node, |from, to| apart(from, to).max(self.min_us(producer, from, to)))
    }

    /// Returns the bounds if the consumer's ranks are a subset of the producer's, by the number of
    /// them with the larger shard of the producer. Empty if all of the producer's ranks have equal
    /// shards, if the consumer has as many ranks or more, or if it has more than 16.
    pub(super) fn subsets(&self, producer: usize, node: usize) -> Vec<Vec<Vec<Subset>>> {
        let (before, own) = ((self.counts)(producer), (self.counts)(node));
        let of_pair = |from: usize, to: usize| {
            let larger = self.costs.ranks_with_larger_shard(from).min(from);
            if to >= from || to > MAX_CHOSEN || larger == from {
                return Vec::new();
            }
            let mut ranges: Vec<Subset> = Vec::new();
            for larger in to.saturating_sub(from - larger)..=to.min(larger) {
                let us = bounds_of(self.costs).min_transfer_to_subset(NodeId(producer), from, to, larger);
                match ranges.last_mut() {
                    Some(last) if last.transfer_us.total_cmp(&us).is_eq() => last.max_larger = larger as f64,
                    _ => {
                        let larger = larger as f64;
                        ranges.push(Subset { min_larger: larger, max_larger: larger, transfer_us: us });
                    }
                }
            }
            ranges
        };
        before.iter().map(|&from| own.iter().map(|&to| of_pair(from, to)).collect()).collect()
    }

    /// Returns the bounds by the producer's count, if the consumer has the same ranks in another
    /// order. 0 if the consumer cannot have that count.
    pub(super) fn reordered(&self, producer: usize, node: usize) -> Vec<(f64, f64)> {
        let any = self.both_ways(producer, node, |from, to| {
            bounds_of(self.costs).min_transfer(NodeId(producer), from, to)
        });
        let own = (self.counts)(node);
        let same = |count: &usize| own.iter().position(|other| other == count);
        let before = (self.counts)(producer);
        before.iter().zip(&*any).map(|(count, row)| same(count).map_or((0.0, 0.0), |to| row[to])).collect()
    }
}

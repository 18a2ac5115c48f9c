//! Costs of the nodes of a path, with GPU counts joined to ranges.

use std::ops::Range;

use super::path::{Path, PathOption, Transfers};

/// Costs of the nodes of a path by range.
pub(super) struct NodeTables {
    /// Number of ranges.
    count: usize,
    /// By node and range.
    options: Vec<Option<PathOption>>,
    /// By node: index of the transfers of its output in `transfers`.
    transfer_of: Vec<usize>,
    /// Transfers by range that an output is moved from, then to.
    transfers: Vec<Transfers>,
}

impl NodeTables {
    pub(super) fn new(path: &Path, of_range: &[Range<usize>]) -> Self {
        let counts = path.counts.len();
        let options = path.nodes.iter().flat_map(|node| {
            of_range
                .iter()
                .map(|range| node.options[range.clone()].iter().copied().flatten().reduce(PathOption::min))
        });
        let options = options.collect();
        let joined = |table: &Transfers| {
            let cell = |(from, to): (&Range<usize>, &Range<usize>)| {
                let cells = from.clone().flat_map(|from| to.clone().map(move |to| from * counts + to));
                cells.map(|cell| table[cell]).fold(f64::INFINITY, f64::min)
            };
            let cells = of_range.iter().flat_map(|from| of_range.iter().map(move |to| (from, to)));
            cells.map(cell).collect()
        };
        let transfers = path.transfers.iter().map(joined).collect();
        let transfer_of = path.nodes.iter().map(|node| node.transfers).collect();
        Self { count: of_range.len(), options, transfer_of, transfers }
    }

    pub(super) fn option(&self, node: usize, range: usize) -> Option<&PathOption> {
        self.options[node * self.count + range].as_ref()
    }

    /// Returns the minimum transfers of a node's output between different lists of ranks, forward
    /// and backward.
    pub(super) fn transfer(&self, node: usize, from: usize, to: usize) -> (f64, f64) {
        let table = &self.transfers[self.transfer_of[node]];
        (table[from * self.count + to], table[to * self.count + from])
    }

    /// Returns the option of a block.
    pub(super) fn block(&self, nodes: &Range<usize>, range: usize) -> Option<PathOption> {
        let first = *self.option(nodes.start, range)?;
        (nodes.start + 1..nodes.end).try_fold(first, |sum, node| {
            let own = self.option(node, range)?;
            Some(PathOption {
                forward_us: sum.forward_us + own.forward_us,
                backward_us: sum.backward_us + own.backward_us,
                less_us: sum.less_us + own.less_us,
                forwarding_us: sum.forwarding_us + own.forwarding_us,
                computing_us: sum.computing_us + own.computing_us,
                ..sum
            })
        })
    }

    /// Returns for each range after a block the minimum of a sum over the changes of the list from
    /// range `from` in the block or at its end. `own` is the value of a node on a range, `moving`
    /// that of transfers between two ranges. The values of the nodes after the first one on `from`
    /// are subtracted. O(nodes x ranges^2).
    pub(super) fn changes(
        &self,
        nodes: &Range<usize>,
        from: usize,
        own: &dyn Fn(usize, &PathOption) -> f64,
        moving: &dyn Fn(usize, usize, (f64, f64)) -> f64,
    ) -> Vec<f64> {
        let never = f64::INFINITY;
        // By range of the last node: the sum if the list has changed, and that if it has not.
        let (mut changed, mut unchanged) = (vec![never; self.count], 0.0);
        let arrive = |changed: &[f64], unchanged: f64, node: usize, to: usize| {
            let stayed = std::iter::once((from, unchanged));
            let ways = changed.iter().copied().enumerate().filter(|&(_, sum)| sum < never).chain(stayed);
            ways.map(|(from, sum)| sum + moving(from, to, self.transfer(node, from, to)))
                .fold(never, f64::min)
        };
        for node in nodes.start + 1..nodes.end {
            let next = (0..self.count).map(|range| {
                let Some(option) = self.option(node, range) else { return never };
                own(range, option) + changed[range].min(arrive(&changed, unchanged, node - 1, range))
            });
            changed = next.collect();
            unchanged += self.option(node, from).map_or(0.0, |option| own(from, option));
        }
        let to_all = (0..self.count)
            .map(|to| changed[to].min(arrive(&changed, unchanged, nodes.end - 1, to)) - unchanged);
        to_all.collect()
    }
}

//! Costs of a path at some resolution: GPU counts are joined to ranges, each with the minimum cost
//! of its counts.
//!
//! A *place* is the index of a node on the path, a *case* the range of the GPU count of the first
//! node.

use std::ops::Range;

use super::node_tables::NodeTables;
use super::path::{BranchCost, Path, PathNode, PathOption};

/// Nodes with at most this fraction of all all-reduces and updates do not begin a block.
const SMALL_PART: f64 = 5e-4;
/// Maximum number of nodes of a block.
const MAX_BLOCK: usize = 6;

/// A range of GPU counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct CountRange {
    /// Minimum count.
    pub(super) gpus: f64,
    /// Minimum number of ranks with the larger shard.
    pub(super) larger: f64,
    /// Minimum duration that a full bucket adds to an all-reduce; it is a maximum over the range,
    /// as the bound subtracts it. Microseconds.
    pub(super) bucket_us: f64,
}

/// Costs of the blocks of a path by place and range, row by row.
///
/// A *block* is a node of the path with the next ones that have hardly any parameters. A run may
/// end at any node, but a run that ends in a block counts the gradients of its first node only.
pub(super) struct Tables<'p> {
    /// The path.
    pub(super) path: &'p Path,
    /// Number of GPUs.
    gpus: f64,
    /// Ranges of GPU counts, ascending.
    pub(super) ranges: Vec<CountRange>,
    /// By block: places of its nodes on the path.
    nodes_of: Vec<Range<usize>>,
    /// Costs of the nodes.
    nodes: NodeTables,
    /// Costs of blocks; `None` if a node cannot run on any count of the range.
    pub(super) options: Vec<Option<PathOption>>,
    /// By place, range of the block before and own range: the cost of a change of the list of ranks
    /// in the block before or at its end.
    pub(super) moves: Vec<Move>,
    /// By place and range: minimum transfers at the start of a run, forward and backward. 0 for the
    /// first block.
    pub(super) entering: Vec<(f64, f64)>,
    /// By first place: the branches that start there, with their last place and their costs by
    /// range.
    pub(super) branches: Vec<Option<(usize, Vec<Option<BranchCost>>)>>,
}

/// Minimum cost of a change of the list of ranks: transfers, plus the difference of the steps of
/// nodes of the block before that are on the new list.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct Move {
    /// Forward, microseconds.
    pub(super) there_us: f64,
    /// Backward, microseconds.
    pub(super) back_us: f64,
    /// Computing, GPU-microseconds.
    pub(super) computing_us: f64,
    /// Computing, and ranks that wait, GPU-microseconds.
    pub(super) gpu_us: f64,
    /// Forward steps, and ranks that wait, GPU-microseconds.
    pub(super) forwarding_us: f64,
    /// Maximum duration of backward steps of nodes of the block before on the new list.
    pub(super) behind_us: f64,
}

impl Move {
    /// Returns the duration in both passes, microseconds.
    pub(super) fn steps_us(&self) -> f64 {
        self.there_us + self.back_us
    }
}

/// Lower bounds for the nodes before a place, by place and range of the node there.
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct Prefixes {
    /// Steps of the nodes before and the transfers to the node at the place, which is on another
    /// list of ranks, in the cycle of a rank with the larger shard of the first node.
    pub(super) steps_us: Vec<f64>,
    /// The same in the cycle of a rank with the smaller shard.
    pub(super) smaller_us: Vec<f64>,
    /// As `steps_us`, with the updates of the mean rank (see [`Tables::shared_part`]).
    pub(super) cycle_us: Vec<f64>,
    /// As `cycle_us`, with the node at the place, on any list of ranks.
    pub(super) with_block_us: Vec<f64>,
}

impl Prefixes {
    /// Returns the minimum for all blocks, microseconds.
    pub(super) fn min_us(&self, tables: &Tables<'_>) -> f64 {
        let last = self.with_block_us.len() - tables.ranges.len();
        self.with_block_us[last..].iter().copied().fold(f64::INFINITY, f64::min)
    }
}

/// Returns costs that are at most those of both branches.
fn min_cost(one: BranchCost, other: BranchCost) -> BranchCost {
    BranchCost {
        forward_us: one.forward_us.min(other.forward_us),
        backward_us: one.backward_us.min(other.backward_us),
        reduce_us: one.reduce_us.min(other.reduce_us),
        computing_us: one.computing_us.min(other.computing_us),
    }
}

/// Returns the blocks of a path. Each begins at the node with parameters, at an end of a branch, at
/// a node that cannot run on a GPU count of the block's first one, or after the maximum number of
/// nodes.
fn blocks(path: &Path) -> Vec<Range<usize>> {
    let reduce_us = |node: &PathNode| {
        node.options.iter().flatten().map(|option| option.reduce_us + option.update_us).fold(0.0, f64::max)
    };
    let small_us = SMALL_PART * path.nodes.iter().map(reduce_us).sum::<f64>();
    let mut begins: Vec<bool> = path.nodes.iter().map(|node| reduce_us(node) > small_us).collect();
    for branch in &path.branches {
        begins[branch.last] = true;
    }
    let runs_like = |first: usize, node: usize| {
        let mut options = path.nodes[first].options.iter().zip(&path.nodes[node].options);
        options.all(|(of_first, own)| of_first.is_none() || own.is_some())
    };
    let mut blocks: Vec<Range<usize>> = Vec::new();
    for (node, begins) in begins.into_iter().enumerate() {
        match blocks.last_mut() {
            Some(block) if !begins && block.len() < MAX_BLOCK && runs_like(block.start, node) => {
                block.end = node + 1;
            }
            _ => blocks.push(node..node + 1),
        }
    }
    // No run can begin within the last block.
    if let Some(last) = blocks.pop() {
        blocks.extend(last.map(|node| node..node + 1));
    }
    blocks
}

impl<'p> Tables<'p> {
    /// Joins the GPU counts to at most `maximum` ranges, and nodes to blocks. O(nodes x counts^2 +
    /// nodes x ranges^3).
    pub(super) fn new(path: &'p Path, gpus: f64, maximum: usize) -> Self {
        let counts = path.counts.len();
        let ranges = counts.min(maximum.max(1));
        let of_range: Vec<Range<usize>> =
            (0..ranges).map(|index| index * counts / ranges..(index + 1) * counts / ranges).collect();
        let min = |values: &[usize], range: &Range<usize>| {
            values[range.clone()].iter().copied().min().unwrap_or(0) as f64
        };
        let range = |range: &Range<usize>| CountRange {
            gpus: min(&path.counts, range),
            larger: min(&path.larger, range),
            bucket_us: path.bucket_us[range.clone()].iter().copied().fold(0.0, f64::max),
        };
        let nodes = NodeTables::new(path, &of_range);
        let blocks = blocks(path);
        let options = blocks.iter().flat_map(|block| (0..ranges).map(|range| nodes.block(block, range)));
        let options = options.collect();
        let block_of = |node: usize| blocks.partition_point(|block| block.end <= node);
        let mut branches = vec![None; blocks.len()];
        for branch in &path.branches {
            let costs = of_range
                .iter()
                .map(|range| branch.costs[range.clone()].iter().copied().flatten().reduce(min_cost));
            // The last node begins a block.
            branches[block_of(branch.first)] = Some((block_of(branch.last), costs.collect()));
        }
        let mut tables = Self {
            path,
            gpus,
            ranges: of_range.iter().map(range).collect(),
            nodes_of: blocks,
            nodes,
            options,
            moves: Vec::new(),
            entering: Vec::new(),
            branches,
        };
        tables.set_moves();
        tables
    }

    /// Sets the costs of changes of the list of ranks.
    fn set_moves(&mut self) {
        let computing = |_: usize, option: &PathOption| option.computing_us;
        let nothing = |_: usize, _: usize, _: (f64, f64)| 0.0;
        let there_us = self.changes(&|_, option| option.forward_us, &|_, _, (there, _)| there);
        let back_us = self.changes(&|_, option| option.backward_us, &|_, _, (_, back)| back);
        let computing_us = self.changes(&computing, &nothing);
        let gpu_us = self.changes(&computing, &|from, to, times| self.waiting_us(from, to, times));
        let forwarding_us = self
            .changes(&|_, option| option.forwarding_us, &|from, to, times| self.waiting_us(from, to, times));
        let count = self.ranges.len();
        let behind_us = |place: usize| -> f64 {
            let nodes = place.checked_sub(1).map_or(0..0, |before| self.nodes_of[before].clone());
            let longest = |node: usize| {
                let options = (0..count).filter_map(|range| self.nodes.option(node, range));
                options.map(|option| option.backward_us).fold(0.0, f64::max)
            };
            nodes.skip(1).map(longest).sum()
        };
        let behind_us: Vec<f64> = (0..self.blocks()).map(behind_us).collect();
        let change = |index: usize| Move {
            there_us: there_us[index],
            back_us: back_us[index],
            computing_us: computing_us[index],
            gpu_us: gpu_us[index],
            forwarding_us: forwarding_us[index],
            behind_us: behind_us[index / (count * count)],
        };
        let moves = (0..there_us.len()).map(change).collect();
        let mut entering = vec![(0.0, 0.0); count];
        for block in self.nodes_of.split_last().map_or(&[][..], |(_, blocks)| blocks) {
            for to in 0..count {
                let ends = block.clone().flat_map(|node| (0..count).map(move |from| (node, from)));
                let possible = ends.filter(|&(node, from)| self.nodes.option(node, from).is_some());
                let ways = possible.map(|(node, from)| self.nodes.transfer(node, from, to));
                entering.push(ways.fold((f64::INFINITY, f64::INFINITY), |minimum, (there, back)| {
                    (minimum.0.min(there), minimum.1.min(back))
                }));
            }
        }
        (self.moves, self.entering) = (moves, entering);
    }

    /// Returns for each place, range of the block before and range of the block there the minimum
    /// of a sum over the changes of the list of ranks between them. It is 0 for the first place.
    /// `own` is the value of a node on a range, `moving` that of transfers between two ranges.
    /// O(nodes x ranges^3).
    fn changes(
        &self,
        own: &dyn Fn(usize, &PathOption) -> f64,
        moving: &dyn Fn(usize, usize, (f64, f64)) -> f64,
    ) -> Vec<f64> {
        let count = self.ranges.len();
        let mut changes = vec![0.0; count * count];
        for block in self.nodes_of.split_last().map_or(&[][..], |(_, blocks)| blocks) {
            for from in 0..count {
                changes.extend(self.nodes.changes(block, from, own, moving));
            }
        }
        changes
    }

    /// Returns the number of blocks.
    pub(super) fn blocks(&self) -> usize {
        self.nodes_of.len()
    }

    /// Returns the larger of two GPU counts.
    fn wider(&self, one: usize, other: usize) -> f64 {
        self.ranges[one].gpus.max(self.ranges[other].gpus)
    }

    /// Returns the costs of the block at a place.
    #[inline]
    pub(super) fn option(&self, place: usize, range: usize) -> Option<&PathOption> {
        self.options[place * self.ranges.len() + range].as_ref()
    }

    /// Returns the cost of a change of the list between the block before a place and the block
    /// there.
    #[inline]
    pub(super) fn moving(&self, place: usize, from: usize, to: usize) -> &Move {
        &self.moves[self.move_index(place, from, to)]
    }

    /// Returns the index of a change of the list among those of all places.
    #[inline]
    fn move_index(&self, place: usize, from: usize, to: usize) -> usize {
        (place * self.ranges.len() + from) * self.ranges.len() + to
    }

    /// Returns the GPU time of ranks that wait for these transfers and have no other work: those of
    /// the longer list for the output, and those of the node before for its gradient.
    fn waiting_us(&self, from: usize, to: usize, (there, back): (f64, f64)) -> f64 {
        self.wider(from, to) * there + self.ranges[from].gpus * back
    }

    /// Returns lower bounds for the nodes before each place, if the first node is in the range
    /// `case`. O(blocks x ranges^2).
    pub(super) fn prefixes(&self, case: usize) -> Prefixes {
        let steps = |_: usize, option: &PathOption| option.steps_us();
        let moving = |index: usize| self.moves[index].steps_us();
        let less = |_: usize, option: &PathOption| option.steps_us() - option.less_us;
        let cycle = |range: usize, option: &PathOption| self.cycle_us(case, range, option);
        let (steps_us, _) = self.minimum_before(case, &steps, &steps, &moving);
        let (smaller_us, _) = self.minimum_before(case, &less, &steps, &moving);
        let (cycle_us, with_block_us) = self.minimum_before(case, &cycle, &cycle, &moving);
        Prefixes { steps_us, smaller_us, cycle_us, with_block_us }
    }

    /// Returns the minimum part of the first node's ranks with the larger shard that are also among
    /// those of a node in `range`, if the first node is in the range `case`.
    pub(super) fn shared_part(&self, case: usize, range: usize) -> f64 {
        let first = self.ranges[case].larger;
        ((self.ranges[range].gpus + first - self.gpus) / first).max(0.0)
    }

    /// Returns the time of a block on `range` in the cycle of the mean of the first node's ranks,
    /// if that node is in the range `case`, microseconds.
    pub(super) fn cycle_us(&self, case: usize, range: usize, option: &PathOption) -> f64 {
        option.steps_us() + self.shared_part(case, range) * option.update_us
    }

    /// Returns the minimum of a sum over the nodes before each place, by place and range of the
    /// node there: for that node on another list of ranks, without it, and for any list, with it.
    ///
    /// `first` returns the value of a node if all nodes before are on the same list, `other` that
    /// of other nodes, both for a range; `moving` that of the change of the list with an index.
    /// O(blocks x ranges^2).
    pub(super) fn minimum_before(
        &self,
        case: usize,
        first: &dyn Fn(usize, &PathOption) -> f64,
        other: &dyn Fn(usize, &PathOption) -> f64,
        moving: &dyn Fn(usize) -> f64,
    ) -> (Vec<f64>, Vec<f64>) {
        let (count, nodes) = (self.ranges.len(), self.blocks());
        let never = f64::INFINITY;
        let (mut without, mut with) = (vec![0.0; count], Vec::with_capacity(nodes * count));
        // By range of the node before: if all nodes are on the first list, and otherwise.
        let mut before = vec![(never, never); count];
        for place in 0..nodes {
            if place > 0 {
                for to in 0..count {
                    let possible = before.iter().enumerate().filter(|(_, sums)| sums.0.min(sums.1) < never);
                    let ways = possible
                        .map(|(from, sums)| sums.0.min(sums.1) + moving(self.move_index(place, from, to)));
                    without.push(ways.fold(never, f64::min));
                }
            }
            for (range, sums) in before.iter_mut().enumerate() {
                *sums = match self.option(place, range) {
                    None => (never, never),
                    Some(option) if place == 0 => {
                        (if case == range { first(range, option) } else { never }, never)
                    }
                    Some(option) => (
                        sums.0 + first(range, option),
                        sums.1.min(without[place * count + range]) + other(range, option),
                    ),
                };
                with.push(sums.0.min(sums.1));
            }
        }
        (without, with)
    }
}

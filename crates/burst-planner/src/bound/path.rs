//! The path whose steps the bound counts, with the costs of its nodes, and the branches beside it.
//!
//! A *place* is the index of a node on the path. Costs are given by index of the GPU count in the
//! ascending list of all counts.

use std::ops::Range;

use rustc_hash::FxHashMap;

use crate::NodeId;
use crate::costs::{CostBounds, CostModel, ShardSize, StepTimes, bounds_of};
use crate::problem::{PlanProblem, ProblemGraph};

/// Minimum durations of moving an output, by number of ranks that it is moved from and number of
/// ranks that it is moved to, row by row, microseconds. The two lists of ranks differ.
pub(super) type Transfers = Vec<f64>;

/// Costs of a node on one GPU count, microseconds. All micro-batches of an iteration are included.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct PathOption {
    /// Forward steps on a rank with the larger shard.
    pub(super) forward_us: f64,
    /// Backward steps on a rank with the larger shard.
    pub(super) backward_us: f64,
    /// Difference of both between the larger and the smaller shard.
    pub(super) less_us: f64,
    /// Minimum update of a rank; 0 without parameters.
    pub(super) update_us: f64,
    /// Minimum duration that its gradient adds to an all-reduce; 0 without one.
    pub(super) reduce_us: f64,
    /// Minimum duration of an all-reduce that contains its gradient, without
    /// [`reduce_us`](Self::reduce_us).
    pub(super) startup_us: f64,
    /// Forward steps, summed over all ranks, GPU-microseconds.
    pub(super) forwarding_us: f64,
    /// Forward and backward steps, summed over all ranks, GPU-microseconds.
    pub(super) computing_us: f64,
    /// Updates, summed over all ranks, GPU-microseconds.
    pub(super) updating_us: f64,
}

impl PathOption {
    /// Returns the forward and backward steps on a rank with the larger shard, microseconds.
    pub(super) fn steps_us(&self) -> f64 {
        self.forward_us + self.backward_us
    }

    /// Returns costs that are at most those of both options.
    pub(super) fn min(self, other: Self) -> Self {
        Self {
            forward_us: self.forward_us.min(other.forward_us),
            backward_us: self.backward_us.min(other.backward_us),
            less_us: self.less_us.max(other.less_us),
            update_us: self.update_us.min(other.update_us),
            reduce_us: self.reduce_us.min(other.reduce_us),
            startup_us: self.startup_us.min(other.startup_us),
            forwarding_us: self.forwarding_us.min(other.forwarding_us),
            computing_us: self.computing_us.min(other.computing_us),
            updating_us: self.updating_us.min(other.updating_us),
        }
    }
}

/// A node of the path.
#[derive(Debug, Clone)]
pub(super) struct PathNode {
    /// Its costs by index of the GPU count; `None` if it cannot run on that count.
    pub(super) options: Vec<Option<PathOption>>,
    /// Index of the transfers of its output in [`Path::transfers`].
    pub(super) transfers: usize,
}

/// Nodes beside the path, between two of its nodes.
#[derive(Debug, Clone)]
pub(super) struct Branch {
    /// Place of the first node of the path that it uses the output of.
    pub(super) first: usize,
    /// Place of the last node of the path that uses its output.
    pub(super) last: usize,
    /// By index of the GPU count: costs that it adds at least if all nodes of the path from `first`
    /// to `last` are on the same list of ranks. `None` if no node of the path can run on that
    /// count.
    pub(super) costs: Vec<Option<BranchCost>>,
}

/// Minimum costs that a branch adds to the path, microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct BranchCost {
    /// Time between the forward steps of the nodes at its ends.
    pub(super) forward_us: f64,
    /// Time between the backward steps of these nodes.
    pub(super) backward_us: f64,
    /// Time by which the forward steps and the all-reduces of the path and the branch take longer
    /// than with [`forward_us`](Self::forward_us) alone.
    pub(super) reduce_us: f64,
    /// Computing of any ranks, GPU-microseconds.
    pub(super) computing_us: f64,
}

/// A path through the graph, with the costs that a bound counts.
#[derive(Debug, Clone)]
pub(super) struct Path {
    /// GPU counts of all nodes, ascending.
    pub(super) counts: Vec<usize>,
    /// By index of the count: number of ranks with the larger shard.
    pub(super) larger: Vec<usize>,
    /// By index of the count: minimum duration that a full bucket adds to an all-reduce,
    /// microseconds.
    pub(super) bucket_us: Vec<f64>,
    /// Transfers of outputs. Nodes with equal [keys](CostModel::transfer_key) share theirs.
    pub(super) transfers: Vec<Transfers>,
    /// The nodes. All need gradients.
    pub(super) nodes: Vec<PathNode>,
    /// Branches beside the path.
    pub(super) branches: Vec<Branch>,
    /// Minimum computing of all other nodes, with updates, GPU-microseconds.
    pub(super) others_us: f64,
    /// Minimum computing of all nodes, with updates, GPU-microseconds.
    pub(super) all_us: f64,
    /// Whether nodes can be split. All ranks then count with the smaller shard, and the gradients
    /// of a run can be in several buckets.
    pub(super) has_splits: bool,
}

/// Costs of the nodes of a problem, as [`PathOption`]s.
struct Options<'m> {
    problem: &'m PlanProblem,
    structure: &'m ProblemGraph,
    costs: &'m dyn CostModel,
    counts: Vec<usize>,
    has_splits: bool,
}

impl Path {
    /// Chooses a path with the longest steps on the smallest GPU counts, of all paths between nodes
    /// with gradients, and computes its costs. The path is empty if no node has a gradient. Returns
    /// `None` if some node cannot run on any count. O(nodes x counts^2).
    pub(super) fn new(
        problem: &PlanProblem,
        structure: &ProblemGraph,
        costs: &dyn CostModel,
    ) -> Option<Self> {
        let (counts, has_splits) = (all_counts(problem), problem.has_splits());
        let options = Options { problem, structure, costs, counts, has_splits };
        let of_nodes: Vec<Vec<Option<PathOption>>> =
            (0..problem.nodes.len()).map(|node| options.of_node(node)).collect();
        if of_nodes.iter().any(|options| options.iter().all(Option::is_none)) {
            return None;
        }
        let nodes = longest_path(structure, &of_nodes);
        let mut is_on_path = vec![false; problem.nodes.len()];
        for &node in &nodes {
            is_on_path[node] = true;
        }
        let min_us = |node: usize| {
            let options = of_nodes[node].iter().flatten();
            options.map(|option| option.computing_us + option.updating_us).fold(f64::INFINITY, f64::min)
        };
        let others_us = (0..problem.nodes.len()).filter(|&node| !is_on_path[node]).map(min_us).sum();
        let mut transfers: Vec<Transfers> = Vec::new();
        let mut known = FxHashMap::default();
        let transfers_of = |&node: &usize| {
            let key = (costs.transfer_key(NodeId(node)), options.may_be_split(node));
            *known.entry(key).or_insert_with(|| {
                transfers.push(options.transfers(node));
                transfers.len() - 1
            })
        };
        let transfers_of: Vec<usize> = nodes.iter().map(transfers_of).collect();
        let all_us = (0..problem.nodes.len()).map(min_us).sum();
        let branches = options.branches(&nodes, &of_nodes);
        let larger = |&count: &usize| {
            if has_splits { count } else { costs.ranks_with_larger_shard(count).min(count) }
        };
        let larger = options.counts.iter().map(larger).collect();
        let bucket_us = options.bucket_us();
        let mut of_nodes: Vec<_> = of_nodes.into_iter().map(Some).collect();
        let path_nodes = nodes
            .iter()
            .zip(transfers_of)
            .filter_map(|(&node, transfers)| Some(PathNode { options: of_nodes[node].take()?, transfers }));
        Some(Self {
            transfers,
            nodes: path_nodes.collect(),
            counts: options.counts,
            larger,
            bucket_us,
            branches,
            others_us,
            all_us,
            has_splits,
        })
    }
}

/// Returns the numbers of ranks on which nodes can run, with and without splits, up to the number
/// of GPUs, ascending.
fn all_counts(problem: &PlanProblem) -> Vec<usize> {
    let of_splits = problem.nodes.iter().flat_map(|node| {
        node.splits.iter().flat_map(|split| node.gpu_counts.iter().map(|ranges| ranges * split.parts))
    });
    let mut counts = problem.all_gpu_counts();
    counts.extend(of_splits.filter(|&count| count <= problem.gpus));
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Returns the nodes of the path with the longest steps with the smallest GPU counts.
fn longest_path(structure: &ProblemGraph, options: &[Vec<Option<PathOption>>]) -> Vec<usize> {
    // By node: the longest path to it, and the node before.
    let mut longest: Vec<(f64, Option<usize>)> = vec![(0.0, None); structure.order.len()];
    let mut end: Option<(f64, usize)> = None;
    for &node in structure.order.iter().filter(|&&node| structure.needs_gradient[node]) {
        let producers = structure.producers[node].iter().filter(|&&from| structure.needs_gradient[from]);
        let best = producers.map(|&from| (longest[from].0, Some(from)));
        let (before_us, before) =
            best.fold((0.0, None), |a, b| if a.1.is_none() || b.0 > a.0 { b } else { a });
        let own = options[node].iter().flatten().next();
        let us = before_us + own.map_or(0.0, PathOption::steps_us);
        longest[node] = (us, before);
        // Of equally long paths, the last node in topological order ends the one that is chosen.
        if end.is_none_or(|(end_us, _)| us >= end_us) {
            end = Some((us, node));
        }
    }
    let mut nodes: Vec<usize> =
        std::iter::successors(end.map(|(_, node)| node), |&node| longest[node].1).collect();
    nodes.reverse();
    nodes
}

impl Options<'_> {
    fn bounds(&self) -> &dyn CostBounds {
        bounds_of(self.costs)
    }

    /// Returns whether the output of a node can be in a layout with several parts.
    fn may_be_split(&self, node: usize) -> bool {
        let mut nodes = std::iter::once(&node).chain(&self.structure.consumers[node]);
        nodes.any(|&node| !self.problem.nodes[node].splits.is_empty())
    }

    /// Returns the costs of a node by index of the GPU count: the minimum over its splits.
    fn of_node(&self, node: usize) -> Vec<Option<PathOption>> {
        let splits = self.problem.nodes[node].splits.len();
        let minimum = |&count: &usize| {
            let all = std::iter::once(None).chain((0..splits).map(Some));
            all.filter_map(|split| self.option(node, split, count)).reduce(PathOption::min)
        };
        self.counts.iter().map(minimum).collect()
    }

    /// Returns the costs of a node with a split, or without one, on `count` ranks.
    fn option(&self, node: usize, split: Option<usize>, count: usize) -> Option<PathOption> {
        let (id, own) = (NodeId(node), &self.problem.nodes[node]);
        let of_split = split.map(|split| &own.splits[split]);
        let parts = of_split.map_or(1, |split| split.parts);
        let ranges = count / parts;
        own.gpu_counts.binary_search(&ranges).ok().filter(|_| count % parts == 0)?;
        let compute = |shard_size| match split {
            None => self.costs.compute(id, count, shard_size),
            Some(split) => self.costs.splits()?.compute(id, split, count, shard_size),
        };
        let micro_batches = self.problem.micro_batches.get() as f64;
        let learns = if self.structure.needs_gradient[node] { 1.0 } else { 0.0 };
        let users = &self.structure.users[node];
        let larger = compute(ShardSize::Larger)?;
        let smaller = compute(ShardSize::Smaller).unwrap_or(larger);
        let many = self.costs.ranks_with_larger_shard(ranges).min(ranges) * parts;
        let smaller = if many == count { larger } else { smaller };
        // Which ranks have the larger shard depends on the split.
        let (larger, many) = if self.has_splits { (larger.min(smaller), count) } else { (larger, many) };
        let smaller = if self.has_splits { larger } else { smaller };
        let sum = |larger: f64, smaller: f64| many as f64 * larger + (count - many) as f64 * smaller;
        let updates = if users.is_empty() { 0.0 } else { 1.0 };
        let summing = if of_split.is_some_and(|split| split.sums_parts) { count } else { ranges };
        // Gradients of shared parameters are reduced among the ranks of all users.
        let is_reduced = users.len() == 1 && summing.saturating_mul(self.costs.replicas()) > 1;
        let (reduce_us, startup_us) = if is_reduced {
            let bytes = of_split.map_or(own.gradient_bytes, |split| split.gradient_bytes);
            let reduce_us = self.bounds().min_marginal_all_reduce(bytes, summing);
            let alone_us = if summing > 1 { self.bounds().min_all_reduce(bytes, summing) } else { 0.0 };
            (reduce_us, (alone_us - reduce_us).max(0.0))
        } else {
            (0.0, 0.0)
        };
        let steps = |times: StepTimes| micro_batches * (times.forward_us + learns * times.backward_us);
        Some(PathOption {
            forward_us: micro_batches * larger.forward_us,
            backward_us: learns * micro_batches * larger.backward_us,
            less_us: (steps(larger) - steps(smaller)).max(0.0),
            update_us: updates * larger.update_us.min(smaller.update_us),
            reduce_us,
            startup_us,
            forwarding_us: micro_batches * sum(larger.forward_us, smaller.forward_us),
            computing_us: sum(steps(larger), steps(smaller)),
            updating_us: updates * sum(larger.update_us, smaller.update_us),
        })
    }

    /// Returns the minimum transfers of a node's output between different lists of ranks.
    fn transfers(&self, node: usize) -> Vec<f64> {
        if self.may_be_split(node) {
            return vec![0.0; self.counts.len() * self.counts.len()];
        }
        let micro_batches = self.problem.micro_batches.get() as f64;
        let to_all = |&from: &usize| {
            self.counts
                .iter()
                .map(move |&to| micro_batches * self.bounds().min_transfer(NodeId(node), from, to))
        };
        self.counts.iter().flat_map(to_all).collect()
    }

    fn bucket_us(&self) -> Vec<f64> {
        let gradients = &self.problem.gradients;
        let bucket_us = |&count: &usize| {
            if gradients.overlap && !self.has_splits {
                self.bounds().min_marginal_all_reduce(gradients.bucket_bytes, count)
            } else {
                f64::INFINITY
            }
        };
        self.counts.iter().map(bucket_us).collect()
    }

    /// Returns the branches beside the path: connected nodes that are not on it, all of which are
    /// between two of its nodes. Branches beside the same part of the path are one.
    fn branches(&self, path: &[usize], options: &[Vec<Option<PathOption>>]) -> Vec<Branch> {
        let graph = self.structure;
        let mut place_of = vec![None; graph.order.len()];
        path.iter().enumerate().for_each(|(place, &node)| place_of[node] = Some(place));
        let mut is_met = vec![false; graph.order.len()];
        let mut found: Vec<(Range<usize>, Vec<Vec<usize>>)> = Vec::new();
        for &begin in &graph.order {
            if place_of[begin].is_some() || is_met[begin] {
                continue;
            }
            let (mut nodes, mut next) = (Vec::new(), vec![begin]);
            let (mut places, mut is_between) = (Range { start: usize::MAX, end: 0 }, true);
            while let Some(node) = next.pop() {
                if std::mem::replace(&mut is_met[node], true) {
                    continue;
                }
                nodes.push(node);
                let (before, after) = (&graph.producers[node], &graph.consumers[node]);
                is_between &= !before.is_empty()
                    && !after.is_empty()
                    && before.iter().all(|&near| graph.needs_gradient[near]);
                next.extend(before.iter().chain(after).filter(|&&near| place_of[near].is_none()));
                let before = before.iter().filter_map(|&near| place_of[near]).min();
                let after = after.iter().filter_map(|&near| place_of[near]).max();
                places.start = places.start.min(before.unwrap_or(usize::MAX));
                places.end = places.end.max(after.unwrap_or(0));
            }
            if is_between && places.start < places.end {
                found.push((places, vec![nodes]));
            }
        }
        found.sort_by_key(|(places, _)| (places.start, places.end));
        found.dedup_by(|next, last| {
            let overlap = next.0.start < last.0.end;
            if overlap {
                last.0.end = last.0.end.max(next.0.end);
                last.1.append(&mut next.1);
            }
            overlap
        });
        let branch = |(places, components): (Range<usize>, Vec<Vec<usize>>)| {
            let costs = self.branch_costs(&path[places.start..=places.end], &components, options);
            Branch { first: places.start, last: places.end, costs }
        };
        found.into_iter().map(branch).collect()
    }

    /// Returns what branches add to a part of the path on one list of ranks. A branch on the same
    /// list adds all of its steps. Otherwise, an output is moved to other ranks and another one
    /// back, while the nodes of the path run.
    fn branch_costs(
        &self,
        path: &[usize],
        branches: &[Vec<usize>],
        options: &[Vec<Option<PathOption>>],
    ) -> Vec<Option<BranchCost>> {
        let (inner, counts) = (&path[1..path.len() - 1], self.counts.len());
        // By branch: transfers of the outputs that its nodes use, and of those of its nodes.
        let transfers: Vec<Vec<Vec<f64>>> = branches
            .iter()
            .map(|nodes| {
                let used = nodes.iter().flat_map(|&node| &self.structure.producers[node]);
                used.chain(nodes).map(|&node| self.transfers(node)).collect()
            })
            .collect();
        let computing_us = branches.iter().flatten().map(|&node| {
            options[node].iter().flatten().map(|option| option.computing_us).fold(f64::INFINITY, f64::min)
        });
        let computing_us: f64 = computing_us.sum();
        let of_count = |index: usize| {
            let sum = |nodes: &[usize], figure: fn(&PathOption) -> f64| {
                nodes.iter().map(|&node| options[node][index].as_ref().map(figure)).sum::<Option<f64>>()
            };
            let forward = |option: &PathOption| option.forward_us;
            let added = |path_us: f64, figure: fn(&PathOption) -> f64| {
                let of_branch = |(nodes, tables): (&Vec<usize>, &Vec<Vec<f64>>)| {
                    let min = |at: &dyn Fn(usize) -> usize| {
                        let values =
                            tables.iter().flat_map(|table| (0..counts).map(|other| table[at(other)]));
                        values.fold(f64::INFINITY, f64::min)
                    };
                    let moved_us = min(&|to| index * counts + to) + min(&|from| from * counts + index);
                    ((moved_us - path_us).max(0.0), sum(nodes, figure).unwrap_or(f64::INFINITY))
                };
                min_added(branches.iter().zip(&transfers).map(of_branch).collect())
            };
            let (path_forward_us, path_backward_us) =
                (sum(inner, forward)?, sum(inner, |option| option.backward_us)?);
            let forward_us = added(path_forward_us, forward);
            Some(BranchCost {
                forward_us,
                backward_us: added(path_backward_us, |option| option.backward_us),
                reduce_us: added(path_forward_us, |option| option.forward_us + option.reduce_us) - forward_us,
                computing_us,
            })
        };
        (0..counts).map(of_count).collect()
    }
}

/// Returns the minimum of what branches add: each either takes a time beside the others, the first
/// of its two numbers, or adds the second one.
fn min_added(mut branches: Vec<(f64, f64)>) -> f64 {
    branches.sort_by(|a, b| b.0.total_cmp(&a.0));
    // The branches with the longest times beside are on the same ranks.
    let (mut minimum, mut serial_us) = (f64::INFINITY, 0.0);
    for (beside_us, own_us) in branches {
        minimum = f64::min(minimum, f64::max(beside_us, serial_us));
        serial_us += own_us;
    }
    minimum.min(serial_us)
}

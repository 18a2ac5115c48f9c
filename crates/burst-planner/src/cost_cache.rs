//! A cache of the cost model's values.
//!
//! A *group* is a list of ranks that has an id. A *slot* is the index of a group among those of the
//! current arrangement. Nodes are given by their indices in the problem. The *larger* shard of a
//! batch that does not divide evenly has one sample more than the *smaller* one.

use rustc_hash::FxHashMap;

use crate::costs::{CostModel, NodeMemory, ShardSize, StepTimes};
use crate::groups::{GroupId, Groups, Slot};
use crate::iteration::ProgramCosts;
use crate::splits::{Layout, group_of, values_of, with_group};
use crate::{NodeId, PlanProblem, TensorLayout, Values};

/// Index of the costs of a node that is not split.
const WHOLE: u32 = u32::MAX;

/// A cost model with a cache of its values. Each value is queried once: the costs of all nodes when
/// a group of a new length is added, transfers and all-reduces on first use.
pub(crate) struct CostCache<'c> {
    /// The cost model whose values are cached.
    pub(crate) costs: Box<dyn CostModel + 'c>,
    /// All groups that have been added.
    pub(crate) groups: Groups,
    replicas: usize,
    /// By group: the index of its table in `costs`.
    tables: Vec<u32>,
    /// By GPU count and node: step durations with the larger and the smaller shard, microseconds; 0
    /// if the cost model has none.
    times: Vec<Vec<[StepTimes; 2]>>,
    /// By GPU count: other costs of all nodes.
    costs_of: Vec<Vec<NodeCosts>>,
    numbers: FxHashMap<usize, u32>,
    /// By node: its maximum memory on a rank over these GPU counts.
    max_memory: Vec<NodeMemory>,
    /// By node: an index of its [transfer key](CostModel::transfer_key).
    transfer_keys: Vec<u32>,
    /// Costs of split nodes: step durations and memory with the larger and the smaller shard.
    split_costs: Vec<([StepTimes; 2], NodeCosts)>,
    /// Index in `split_costs` by node, split and number of ranks.
    split_indices: FxHashMap<(usize, usize, usize), u32>,
    /// By node of the current arrangement: index in `split_costs`, or [`WHOLE`]. Empty if no node
    /// is split.
    used_splits: Vec<u32>,
    /// By index of the transfer key and both layouts, with ids of groups.
    transfers: FxHashMap<(u32, Layout, Layout), f64>,
    reductions: FxHashMap<(u64, GroupId), f64>,
    /// Groups of the current arrangement, in ascending order of their ids; the index is the slot.
    pub(crate) used: Vec<GroupId>,
    used_tables: Vec<u32>,
}

/// Costs of a node on a GPU count, on each rank.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeCosts {
    /// Whether the cost model has step durations.
    are_known: bool,
    /// Memory with the larger and the smaller shard, bytes.
    memory: [NodeMemory; 2],
}

impl<'c> CostCache<'c> {
    /// Creates an empty cache of the costs of `nodes` nodes.
    pub(crate) fn new(costs: impl CostModel + 'c, nodes: usize) -> Self {
        let mut indices = FxHashMap::default();
        let index = |node| {
            let next = indices.len() as u32;
            *indices.entry(costs.transfer_key(NodeId(node))).or_insert(next)
        };
        Self {
            transfer_keys: (0..nodes).map(index).collect(),
            replicas: costs.replicas().max(1),
            costs: Box::new(costs),
            groups: Groups::default(),
            tables: Vec::new(),
            times: Vec::new(),
            costs_of: Vec::new(),
            numbers: FxHashMap::default(),
            max_memory: Vec::new(),
            split_costs: Vec::new(),
            split_indices: FxHashMap::default(),
            used_splits: Vec::new(),
            transfers: FxHashMap::default(),
            reductions: FxHashMap::default(),
            used: Vec::new(),
            used_tables: Vec::new(),
        }
    }

    /// Sets the groups of the current arrangement: slot i is `groups[i]`. They have been added
    /// before. `splits` has the index of the costs of each node, as
    /// [`split_index`](Self::split_index) returns it; it is empty if no node is split.
    pub(crate) fn set_used(&mut self, groups: Vec<GroupId>, splits: impl Iterator<Item = Option<u32>>) {
        self.used_splits.clear();
        self.used_splits.extend(splits.map(|index| index.unwrap_or(WHOLE)));
        self.used_tables.clear();
        self.used_tables.extend(groups.iter().map(|&group| self.tables[group as usize]));
        self.used = groups;
    }

    /// Returns the id of a list of ranks. Adds the list if it is new, and queries the costs of all
    /// nodes if no list had as many ranks.
    pub(crate) fn group(&mut self, problem: &PlanProblem, ranks: &[usize]) -> GroupId {
        let group = self.groups.id_of(ranks);
        self.query_costs(problem, group);
        group
    }

    /// As [`group`](Self::group), for `count` consecutive ranks from `start` on.
    pub(crate) fn range(&mut self, problem: &PlanProblem, start: usize, count: usize) -> GroupId {
        let group = self.groups.id_of_range(start, count);
        self.query_costs(problem, group);
        group
    }

    /// As [`group`](Self::group), with several ranks for each range of samples. The number of ranks
    /// is a multiple of `parts`.
    pub(crate) fn group_in_parts(&mut self, problem: &PlanProblem, ranks: &[usize], parts: usize) -> GroupId {
        let whole = self.group(problem, ranks);
        let group = self.groups.id_of_parts(whole, parts);
        if self.tables.len() == group as usize {
            self.tables.push(self.tables[whole as usize]);
            if let Some(costs) = self.costs.splits() {
                for (node, maximum) in self.max_memory.iter_mut().enumerate() {
                    for values in [Values::Copies, Values::Ranges, Values::Addends, Values::Positions] {
                        let larger = ShardSize::Larger;
                        let bytes = costs.output_bytes(NodeId(node), ranks.len(), parts, values, larger);
                        maximum.output_bytes = maximum.output_bytes.max(bytes);
                    }
                }
            }
        }
        group
    }

    /// Returns the index of the costs of a node with a split on a number of ranks. Queries the cost
    /// model if they are new. `None` if it has no step durations.
    pub(crate) fn split_index(&mut self, node: usize, split: usize, ranks: usize) -> Option<u32> {
        let index = *self.split_indices.entry((node, split, ranks)).or_insert_with(|| {
            let model = self.costs.splits();
            let sizes = [ShardSize::Larger, ShardSize::Smaller];
            let steps = sizes.map(|size| model?.compute(NodeId(node), split, ranks, size));
            let memory = sizes.map(|size| {
                let memory = model.map(|model| model.memory(NodeId(node), split, ranks, size));
                NodeMemory { output_bytes: 0, ..memory.unwrap_or_default() }
            });
            let are_known = steps.iter().all(Option::is_some);
            if let Some(maximum) = self.max_memory.get_mut(node) {
                *maximum = memory.into_iter().fold(*maximum, NodeMemory::max);
            }
            self.split_costs.push((steps.map(Option::unwrap_or_default), NodeCosts { are_known, memory }));
            self.split_costs.len() as u32 - 1
        });
        self.split_costs[index as usize].1.are_known.then_some(index)
    }

    /// Returns the step durations at an index of [`split_index`](Self::split_index), on a rank with
    /// the larger shard, microseconds.
    pub(crate) fn split_steps(&self, index: u32) -> StepTimes {
        self.split_costs[index as usize].0[0]
    }

    /// Queries the costs of all nodes on a new group.
    fn query_costs(&mut self, problem: &PlanProblem, group: GroupId) {
        if self.tables.len() == group as usize {
            let count = self.groups.len(group);
            let (costs, maximum) = (&self.costs, &mut self.max_memory);
            let (times, costs_of) = (&mut self.times, &mut self.costs_of);
            maximum.resize(problem.nodes.len(), NodeMemory::default());
            let table = *self.numbers.entry(count).or_insert_with(|| {
                let of_node = |node| {
                    let node = NodeId(node);
                    let steps = [ShardSize::Larger, ShardSize::Smaller]
                        .map(|shard_size| costs.compute(node, count, shard_size));
                    let are_known = steps.iter().all(Option::is_some);
                    let memory = [ShardSize::Larger, ShardSize::Smaller]
                        .map(|shard_size| costs.memory(node, count, shard_size));
                    (steps.map(Option::unwrap_or_default), NodeCosts { are_known, memory })
                };
                let (steps, table): (Vec<_>, Vec<NodeCosts>) = (0..problem.nodes.len()).map(of_node).unzip();
                for (maximum, of_node) in maximum.iter_mut().zip(&table) {
                    *maximum = of_node.memory.into_iter().fold(*maximum, NodeMemory::max);
                }
                times.push(steps);
                costs_of.push(table);
                costs_of.len() as u32 - 1
            });
            self.tables.push(table);
        }
    }

    /// Returns the group of all ranks of some groups, in ascending order, and adds it if it is new.
    /// Gradients on the same set of ranks share a bucket.
    pub(crate) fn union(&mut self, problem: &PlanProblem, groups: impl Iterator<Item = GroupId>) -> GroupId {
        let mut ranks: Vec<usize> = groups.flat_map(|group| self.groups.ranks(group).to_vec()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        self.group(problem, &ranks)
    }

    /// Returns the step durations of a node on a group that has been added, with the larger and the
    /// smaller shard, microseconds.
    pub(crate) fn steps_on(&self, node: usize, group: GroupId) -> &[StepTimes; 2] {
        &self.times[self.tables[group as usize] as usize][node]
    }

    /// Returns the memory of a node on the group of a slot, with the larger and the smaller shard.
    /// If the node is split, it is without the output.
    pub(crate) fn memory(&self, node: usize, group: Slot) -> &[NodeMemory; 2] {
        if let Some(split) = self.split_of(node) {
            return &split.1.memory;
        }
        &self.costs_of[self.used_tables[group as usize] as usize][node].memory
    }

    /// Returns the costs of a node of the current arrangement that is split.
    #[inline]
    fn split_of(&self, node: usize) -> Option<&([StepTimes; 2], NodeCosts)> {
        let index = self.used_splits.get(node).filter(|&&index| index != WHOLE)?;
        self.split_costs.get(*index as usize)
    }

    /// Returns the size of a node's output on a rank of a layout, whose group is given by its slot,
    /// bytes.
    pub(crate) fn output_bytes(&self, node: usize, layout: Layout, shard_size: ShardSize) -> u64 {
        let (slot, group) = (group_of(layout) as usize, self.used[group_of(layout) as usize]);
        let (ranks, parts) = (self.groups.len(group), self.groups.parts(group));
        if let Some(costs) = self.costs.splits().filter(|_| parts > 1) {
            return costs.output_bytes(NodeId(node), ranks, parts, values_of(layout), shard_size);
        }
        let costs = &self.costs_of[self.used_tables[slot] as usize][node];
        costs.memory[shard_size as usize].output_bytes
    }

    /// Returns the number of parts of the group of a slot.
    pub(crate) fn parts(&self, group: Slot) -> usize {
        self.groups.parts(self.used[group as usize])
    }

    /// Returns by node the maximum of each of its memory sizes on a rank, over all groups that have
    /// been added, including groups that only its output is moved to.
    pub(crate) fn max_memory(&self) -> &[NodeMemory] {
        &self.max_memory
    }

    /// Returns the number of ranks with the same part of the group of a slot, in all
    /// [replicas](CostModel::replicas) of the arrangement.
    pub(crate) fn len(&self, group: Slot) -> usize {
        self.groups.sample_ranges(self.used[group as usize]).saturating_mul(self.replicas)
    }

    /// Returns the duration of moving the output of node `producer` from one layout to another, one
    /// way, microseconds. The groups of both layouts are given by their ids.
    pub(crate) fn transfer_us(&mut self, producer: u32, from: Layout, to: Layout) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        let node = NodeId(producer as usize);
        let tensor = |layout: Layout| {
            let group = group_of(layout);
            let (parts, values) = (groups.parts(group), values_of(layout));
            TensorLayout { ranks: groups.ranks(group), parts, values }
        };
        let ask = || {
            let (from, to) = (tensor(from), tensor(to));
            match costs.splits() {
                Some(costs) if from.parts.max(to.parts) > 1 => costs.transfer(node, from, to),
                _ => costs.transfer(node, from.ranks, to.ranks),
            }
        };
        let key = self.transfer_keys[producer as usize];
        *self.transfers.entry((key, from, to)).or_insert_with(ask)
    }

    /// Returns the duration of an all-reduce of `bytes` bytes over a group, between the ranks with
    /// the same part, microseconds.
    pub(crate) fn reduce_us(&mut self, bytes: u64, group: GroupId) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        *self.reductions.entry((bytes, group)).or_insert_with(|| match groups.parts(group) {
            1 => costs.all_reduce(bytes, groups.ranks(group)),
            parts => costs.grouped_all_reduce(bytes, &groups.ranks_by_part(group), parts),
        })
    }

    /// Returns whether the cost model has step durations of a node on a group, for both shard
    /// sizes.
    pub(crate) fn has_times(&self, node: usize, group: GroupId) -> bool {
        self.costs_of[self.tables[group as usize] as usize][node].are_known
    }
}

impl ProgramCosts for CostCache<'_> {
    #[inline]
    fn steps(&self, node: usize, group: Slot) -> &[StepTimes; 2] {
        match self.split_of(node) {
            Some(split) => &split.0,
            None => &self.times[self.used_tables[group as usize] as usize][node],
        }
    }

    fn transfer(&mut self, producer: usize, from: Layout, to: Layout) -> f64 {
        let with_id = |layout| with_group(layout, self.used[group_of(layout) as usize]);
        self.transfer_us(producer as u32, with_id(from), with_id(to))
    }

    fn reduce(&mut self, bytes: u64, group: Slot) -> f64 {
        self.reduce_us(bytes, self.used[group as usize])
    }

    fn size(&self, group: Slot) -> usize {
        self.len(group)
    }
}

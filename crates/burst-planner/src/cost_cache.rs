//! A cache of the cost model's values.
//!
//! A *group* is a list of ranks that has an id. A *slot* is the index of a group among those of the
//! current arrangement. Nodes are given by their indices in the problem. The *larger* shard of a
//! batch that does not divide evenly has one sample more than the *smaller* one.

use rustc_hash::FxHashMap;

use crate::costs::{CostModel, NodeMemory, ShardSize, StepTimes};
use crate::groups::{GroupId, Groups, Slot};
use crate::iteration::ProgramCosts;
use crate::{NodeId, PlanProblem};

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
    /// By index of the transfer key and both groups.
    transfers: FxHashMap<(u32, GroupId, GroupId), f64>,
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
            transfers: FxHashMap::default(),
            reductions: FxHashMap::default(),
            used: Vec::new(),
            used_tables: Vec::new(),
        }
    }

    /// Sets the groups of the current arrangement: slot i is `groups[i]`. They have been added
    /// before.
    pub(crate) fn set_used_groups(&mut self, groups: Vec<GroupId>) {
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
    pub(crate) fn memory(&self, node: usize, group: Slot) -> &[NodeMemory; 2] {
        &self.costs_of[self.used_tables[group as usize] as usize][node].memory
    }

    /// Returns by node the maximum of each of its memory sizes on a rank, over all groups that have
    /// been added, including groups that only its output is moved to.
    pub(crate) fn max_memory(&self) -> &[NodeMemory] {
        &self.max_memory
    }

    /// Returns the number of ranks of the group of a slot, in all [replicas](CostModel::replicas)
    /// of the arrangement.
    pub(crate) fn len(&self, group: Slot) -> usize {
        self.groups.len(self.used[group as usize]).saturating_mul(self.replicas)
    }

    /// Returns the duration of moving the output of node `producer` from one group to another, one
    /// way, microseconds.
    pub(crate) fn transfer_us(&mut self, producer: u32, from: GroupId, to: GroupId) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        let ask = || costs.transfer(NodeId(producer as usize), groups.ranks(from), groups.ranks(to));
        let key = self.transfer_keys[producer as usize];
        *self.transfers.entry((key, from, to)).or_insert_with(ask)
    }

    /// Returns the duration of an all-reduce of `bytes` bytes over a group, microseconds.
    pub(crate) fn reduce_us(&mut self, bytes: u64, group: GroupId) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        *self.reductions.entry((bytes, group)).or_insert_with(|| costs.all_reduce(bytes, groups.ranks(group)))
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
        &self.times[self.used_tables[group as usize] as usize][node]
    }

    fn transfer(&mut self, producer: usize, from: Slot, to: Slot) -> f64 {
        self.transfer_us(producer as u32, self.used[from as usize], self.used[to as usize])
    }

    fn reduce(&mut self, bytes: u64, group: Slot) -> f64 {
        self.reduce_us(bytes, self.used[group as usize])
    }

    fn size(&self, group: Slot) -> usize {
        self.len(group)
    }
}

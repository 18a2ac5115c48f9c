//! What the costs have said, so that they are asked once.

use rustc_hash::FxHashMap;

use crate::NodeId;
use crate::PlanProblem;
use crate::costs::{CostModel, NodeMemory, ShardSize, StepTimes};
use crate::groups::{GroupId, Groups, Slot};
use crate::iteration::ProgramCosts;

/// The costs, and what they have said.
pub(crate) struct CostCache<'c> {
    pub(crate) costs: Box<dyn CostModel + 'c>,
    pub(crate) groups: Groups,
    replicas: usize,
    /// By group: its table.
    tables: Vec<u32>,
    /// By GPU count, by node.
    steps: Vec<Vec<NodeCosts>>,
    numbers: FxHashMap<usize, u32>,
    /// By node: the most that any of these GPU counts needs on a rank.
    max_memory: Vec<NodeMemory>,
    transfers: FxHashMap<(u32, GroupId, GroupId), f64>,
    reductions: FxHashMap<(u64, GroupId), f64>,
    /// By slot of the arrangement that is evaluated: the group, ascending, and its table.
    pub(crate) used: Vec<GroupId>,
    used_tables: Vec<u32>,
}

/// The steps of a node on a GPU count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NodeCosts {
    /// With the larger and the smaller share.
    pub(crate) times: [StepTimes; 2],
    /// Whether there are such times at all.
    are_known: bool,
    /// With the larger and the smaller share.
    memory: [NodeMemory; 2],
}

impl<'c> CostCache<'c> {
    pub(crate) fn new(costs: impl CostModel + 'c) -> Self {
        Self {
            replicas: costs.replicas().max(1),
            costs: Box::new(costs),
            groups: Groups::default(),
            tables: Vec::new(),
            steps: Vec::new(),
            numbers: FxHashMap::default(),
            max_memory: Vec::new(),
            transfers: FxHashMap::default(),
            reductions: FxHashMap::default(),
            used: Vec::new(),
            used_tables: Vec::new(),
        }
    }

    /// From now on, slots are the numbers of these groups.
    pub(crate) fn set_used_groups(&mut self, groups: Vec<GroupId>) {
        self.used_tables.clear();
        self.used_tables.extend(groups.iter().map(|&group| self.tables[group as usize]));
        self.used = groups;
    }

    pub(crate) fn group(&mut self, problem: &PlanProblem, ranks: &[usize]) -> GroupId {
        let group = self.groups.number(ranks);
        self.query_costs(problem, group);
        group
    }

    /// The group of `count` ranks from `start` on.
    pub(crate) fn range(&mut self, problem: &PlanProblem, start: usize, count: usize) -> GroupId {
        let group = self.groups.number_of_range(start, count);
        self.query_costs(problem, group);
        group
    }

    /// Asks what the steps of all nodes take on a group that is new.
    fn query_costs(&mut self, problem: &PlanProblem, group: GroupId) {
        if self.tables.len() == group as usize {
            let count = self.groups.len(group);
            let (costs, steps, most) = (&self.costs, &mut self.steps, &mut self.max_memory);
            most.resize(problem.nodes.len(), NodeMemory::default());
            let table = *self.numbers.entry(count).or_insert_with(|| {
                let of_node = |node| {
                    let node = NodeId(node);
                    let steps = [ShardSize::Larger, ShardSize::Smaller]
                        .map(|share| costs.compute(node, count, share));
                    let are_known = steps.iter().all(Option::is_some);
                    let memory =
                        [ShardSize::Larger, ShardSize::Smaller].map(|share| costs.memory(node, count, share));
                    NodeCosts { times: steps.map(Option::unwrap_or_default), are_known, memory }
                };
                let table: Vec<NodeCosts> = (0..problem.nodes.len()).map(of_node).collect();
                for (most, of_node) in most.iter_mut().zip(&table) {
                    *most = of_node.memory.into_iter().fold(*most, NodeMemory::max);
                }
                steps.push(table);
                steps.len() as u32 - 1
            });
            self.tables.push(table);
        }
    }

    /// All ranks of some groups, ascending: the same ranks share a bucket, whichever of the groups they are in.
    pub(crate) fn union(&mut self, problem: &PlanProblem, groups: impl Iterator<Item = GroupId>) -> GroupId {
        let mut ranks: Vec<usize> = groups.flat_map(|group| self.groups.ranks(group).to_vec()).collect();
        ranks.sort_unstable();
        ranks.dedup();
        self.group(problem, &ranks)
    }

    pub(crate) fn steps_on(&self, node: usize, group: GroupId) -> &NodeCosts {
        &self.steps[self.tables[group as usize] as usize][node]
    }

    /// What a node needs where its samples lie as those of a group in use.
    pub(crate) fn memory(&self, node: usize, group: Slot) -> &[NodeMemory; 2] {
        &self.steps[self.used_tables[group as usize] as usize][node].memory
    }

    /// By node: the most that it needs on a rank, whichever of the groups that were met it is on, or its output goes to.
    pub(crate) fn max_memory(&self) -> &[NodeMemory] {
        &self.max_memory
    }

    /// How many ranks a group in use has, in all replicas together.
    pub(crate) fn len(&self, group: Slot) -> usize {
        self.groups.len(self.used[group as usize]).saturating_mul(self.replicas)
    }

    /// What moving the output of a node from the ranks of one group to those of another takes.
    pub(crate) fn transfer_us(&mut self, producer: u32, from: GroupId, to: GroupId) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        let ask = || costs.transfer(NodeId(producer as usize), groups.ranks(from), groups.ranks(to));
        *self.transfers.entry((producer, from, to)).or_insert_with(ask)
    }

    /// What summing up so many bytes over the ranks of a group takes.
    pub(crate) fn reduce_us(&mut self, bytes: u64, group: GroupId) -> f64 {
        let (costs, groups) = (&self.costs, &self.groups);
        *self.reductions.entry((bytes, group)).or_insert_with(|| costs.all_reduce(bytes, groups.ranks(group)))
    }

    pub(crate) fn has_times(&self, node: usize, group: GroupId) -> bool {
        self.steps_on(node, group).are_known
    }
}

impl ProgramCosts for CostCache<'_> {
    #[inline]
    fn steps(&self, node: usize, group: Slot) -> &[StepTimes; 2] {
        &self.steps[self.used_tables[group as usize] as usize][node].times
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

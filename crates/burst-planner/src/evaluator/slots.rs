//! The groups of an arrangement and the classes of their ranks.

use std::rc::Rc;

use super::{Evaluator, NumberedArrangement};
use crate::groups::{Class, Classes, GroupId, Slot};
use crate::problem::ProblemGraph;
use crate::splits::{Layout, NodeTensors, layout};
use crate::{Error, NodeSplit, PlanProblem, Result, SplitCosts, SynchronizedBytes, Values};

/// Capacity of the rank-class cache, in sets of groups (about 10 MB).
const MAX_CACHED_CLASSES: usize = 1 << 14;

/// The groups of an arrangement, numbered by first use.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By node: its slot.
    pub(super) nodes: Vec<Slot>,
    /// By node: the slot of the ranks that sum its metrics.
    pub(super) sums: Vec<Slot>,
    /// By node that owns parameters: the slot of the ranks that hold them, and sum their gradients.
    pub(super) parameters: Vec<Slot>,
    /// Slot of the ranks that hold any parameters, if their norm is needed.
    pub(super) all_parameters: Option<Slot>,
    /// By group: its slot, or [`UNUSED`] between evaluations.
    by_group: Vec<Slot>,
    /// Tensors of the nodes, if any node is split.
    split: Option<SplitTensors>,
}

/// Layouts and sizes of the tensors of the nodes of an arrangement with splits, each by node.
#[derive(Debug, Default)]
struct SplitTensors {
    reduces_addends: bool,
    outputs: Vec<Layout>,
    output_gradients: Vec<Layout>,
    inputs: Vec<Layout>,
    input_gradients: Vec<Layout>,
    gradient_bytes: Vec<u64>,
    state_bytes: Vec<u64>,
    synchronized: Vec<SynchronizedBytes>,
}

impl SplitTensors {
    /// Creates the tensors of an arrangement. `slots` has the slot of each node.
    fn new(
        problem: &PlanProblem,
        structure: &ProblemGraph,
        numbered: &NumberedArrangement,
        slots: &[Slot],
        reduces_addends: bool,
    ) -> Self {
        let mut tensors = Self {
            reduces_addends,
            gradient_bytes: structure.gradient_bytes.clone(),
            state_bytes: structure.state_bytes.clone(),
            synchronized: structure.synchronized.clone(),
            ..Self::default()
        };
        for (node, &slot) in slots.iter().enumerate() {
            let split = numbered.split(node).map(|split| &problem.nodes[node].splits[split]);
            let of = |values: fn(&NodeSplit) -> Values| layout(slot, split.map_or(Values::Copies, values));
            tensors.outputs.push(of(|split| split.output));
            tensors.output_gradients.push(of(NodeSplit::output_gradient));
            tensors.inputs.push(of(|split| split.input));
            tensors.input_gradients.push(of(|split| split.input_gradient));
            if let Some(split) = split {
                let nothing = SynchronizedBytes { forward: 0, backward: 0 };
                tensors.gradient_bytes[node] = split.gradient_bytes;
                tensors.state_bytes[node] = split.state_bytes;
                tensors.synchronized[node] = split.synchronized.unwrap_or(nothing);
            }
        }
        tensors
    }
}

impl Slots {
    /// Returns the tensors of the nodes. The layout of a node that is not split is its slot.
    pub(super) fn tensors<'s>(&'s self, structure: &'s ProblemGraph) -> NodeTensors<'s> {
        match &self.split {
            None => NodeTensors {
                are_split: false,
                reduces_addends: true,
                outputs: &self.nodes,
                output_gradients: &self.nodes,
                inputs: &self.nodes,
                input_gradients: &self.nodes,
                gradient_bytes: &structure.gradient_bytes,
                state_bytes: &structure.state_bytes,
                synchronized: &structure.synchronized,
            },
            Some(split) => NodeTensors {
                are_split: true,
                reduces_addends: split.reduces_addends,
                outputs: &split.outputs,
                output_gradients: &split.output_gradients,
                inputs: &split.inputs,
                input_gradients: &split.input_gradients,
                gradient_bytes: &split.gradient_bytes,
                state_bytes: &split.state_bytes,
                synchronized: &split.synchronized,
            },
        }
    }
}

/// Slot of a group that the arrangement does not use.
const UNUSED: Slot = Slot::MAX;

impl Evaluator<'_> {
    /// Assigns slots to the groups of an arrangement.
    pub(super) fn number_groups(&mut self, numbered: &NumberedArrangement) {
        let sums = self.sum_groups(numbered);
        let own = sums.as_ref().unwrap_or(&numbered.groups);
        let (parameters, all_parameters) = self.parameter_groups(numbered, own);
        let (cache, slots) = (&mut self.cache, &mut self.slots);
        slots.by_group.resize(cache.groups.count(), UNUSED);
        let mut used = std::mem::take(&mut cache.used);
        used.clear();
        let others = sums.iter().chain(&parameters).flatten().chain(&all_parameters);
        for &group in numbered.groups.iter().chain(others) {
            if std::mem::replace(&mut slots.by_group[group as usize], 0) == UNUSED {
                used.push(group);
            }
        }
        used.sort_unstable();
        for (slot, &group) in used.iter().enumerate() {
            slots.by_group[group as usize] = slot as Slot;
        }
        let of_group = |&group: &GroupId| slots.by_group[group as usize];
        slots.nodes.clear();
        slots.nodes.extend(numbered.groups.iter().map(of_group));
        slots.sums.clear();
        slots.sums.extend(own.iter().map(of_group));
        slots.parameters.clear();
        slots.parameters.extend(parameters.as_ref().unwrap_or(own).iter().map(of_group));
        slots.all_parameters = all_parameters.as_ref().map(of_group);
        for &group in &used {
            slots.by_group[group as usize] = UNUSED;
        }
        let is_split = numbered.splits.is_some();
        let split_indices = (0..if is_split { numbered.groups.len() } else { 0 }).map(|node| {
            let split = numbered.split(node)?;
            cache.split_index(node, split, cache.groups.len(numbered.groups[node]))
        });
        let split_indices: Vec<Option<u32>> = split_indices.collect();
        cache.set_used(used, split_indices.into_iter());
        let reduces_addends = cache.costs.splits().is_none_or(SplitCosts::reduces_addends_in_place);
        slots.split = is_split.then(|| {
            SplitTensors::new(self.problem, &self.structure, numbered, &slots.nodes, reduces_addends)
        });
    }

    /// Returns for each node the group whose ranks with the same part sum its metrics and the
    /// gradients of its parameters; `None` if that is always the node's own group.
    fn sum_groups(&self, numbered: &NumberedArrangement) -> Option<Vec<GroupId>> {
        let sums_parts = |node: usize| {
            numbered.split(node).is_some_and(|split| self.problem.nodes[node].splits[split].sums_parts)
        };
        let mut groups = None;
        for node in (0..numbered.groups.len()).filter(|&node| sums_parts(node)) {
            let whole = self.cache.groups.whole(numbered.groups[node]);
            groups.get_or_insert_with(|| numbered.groups.clone())[node] = whole;
        }
        groups
    }

    /// Returns for each node the group that holds the parameters that it owns, unless that is
    /// always the node's own group among `own`, and the group of all parameters if their norm is
    /// needed.
    fn parameter_groups(
        &mut self,
        numbered: &NumberedArrangement,
        own: &[GroupId],
    ) -> (Option<Vec<GroupId>>, Option<GroupId>) {
        let mut groups = None;
        for (node, users) in self.structure.users.iter().enumerate() {
            if users.iter().any(|&user| numbered.groups[user] != numbered.groups[node]) {
                let of_users = users.iter().map(|&user| numbered.groups[user]);
                let union = self.cache.union(self.problem, of_users);
                groups.get_or_insert_with(|| own.to_vec())[node] = union;
            }
        }
        if !self.problem.gradients.clip_norm {
            return (groups, None);
        }
        let held = groups.as_deref().unwrap_or(own);
        let of_owners = (0..held.len()).filter(|&node| !self.structure.users[node].is_empty());
        let of_owners: Vec<GroupId> = of_owners.map(|node| held[node]).collect();
        let all = (!of_owners.is_empty()).then(|| self.cache.union(self.problem, of_owners.into_iter()));
        (groups, all)
    }

    /// Returns the classes of the groups in use.
    pub(super) fn classes(&mut self) -> Result<Rc<Classes>> {
        let used = &self.cache.used[..];
        if let Some(cache) = self.classes.get(used) {
            return Ok(Rc::clone(cache));
        }
        let larger = |count| self.cache.costs.ranks_with_larger_shard(count);
        let classes = Rc::new(Classes::new(&self.cache.groups, used, self.problem.gpus, larger));
        if classes.len() > usize::from(Class::MAX) {
            return Err(Error::TooManyClasses { classes: classes.len() });
        }
        if self.classes.len() == MAX_CACHED_CLASSES {
            self.classes.clear();
        }
        self.classes.insert(used.into(), Rc::clone(&classes));
        Ok(classes)
    }
}

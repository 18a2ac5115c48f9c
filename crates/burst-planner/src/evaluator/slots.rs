//! The groups of an arrangement and the classes of their ranks.

use std::rc::Rc;

use super::{Evaluator, NumberedArrangement};
use crate::groups::{Class, Classes, GroupId, Slot};
use crate::{Error, Result};

/// Capacity of the rank-class cache, in sets of groups (about 10 MB).
const MAX_CACHED_CLASSES: usize = 1 << 14;

/// The groups of an arrangement, numbered by first use.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// By node: its slot.
    pub(super) nodes: Vec<Slot>,
    /// By node that owns parameters: the slot of the ranks that hold them.
    pub(super) parameters: Vec<Slot>,
    /// Slot of the ranks that hold any parameters, if their norm is needed.
    pub(super) all_parameters: Option<Slot>,
    /// By group: its slot, or [`UNUSED`] between evaluations.
    by_group: Vec<Slot>,
}

/// Slot of a group that the arrangement does not use.
const UNUSED: Slot = Slot::MAX;

impl Evaluator<'_> {
    /// Assigns slots to the groups of an arrangement.
    pub(super) fn number_groups(&mut self, numbered: &NumberedArrangement) {
        let (parameters, all_parameters) = self.parameter_groups(numbered);
        let (cache, slots) = (&mut self.cache, &mut self.slots);
        slots.by_group.resize(cache.groups.count(), UNUSED);
        let mut used = std::mem::take(&mut cache.used);
        used.clear();
        let others = parameters.iter().flatten().chain(&all_parameters);
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
        slots.parameters.clear();
        slots.parameters.extend(parameters.as_ref().unwrap_or(&numbered.groups).iter().map(of_group));
        slots.all_parameters = all_parameters.as_ref().map(of_group);
        for &group in &used {
            slots.by_group[group as usize] = UNUSED;
        }
        cache.set_used_groups(used);
    }

    /// Returns for each node the group that holds the parameters that it owns, unless that is
    /// always the node's own group, and the group of all parameters if their norm is needed.
    fn parameter_groups(
        &mut self,
        numbered: &NumberedArrangement,
    ) -> (Option<Vec<GroupId>>, Option<GroupId>) {
        let mut groups = None;
        for (node, users) in self.structure.users.iter().enumerate() {
            if users.iter().any(|&user| numbered.groups[user] != numbered.groups[node]) {
                let of_users = users.iter().map(|&user| numbered.groups[user]);
                let union = self.cache.union(self.problem, of_users);
                groups.get_or_insert_with(|| numbered.groups.clone())[node] = union;
            }
        }
        if !self.problem.gradients.clip_norm {
            return (groups, None);
        }
        let held = groups.as_ref().unwrap_or(&numbered.groups);
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

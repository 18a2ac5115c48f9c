//! Groups under creation, and the members that have called for them. A *plan* says which group is
//! to be created. It is the same on all members except for `parent`, a local identifier.

use std::collections::HashMap;

use super::transfer::Transfer;
use crate::{Call, Operation};

/// Description of a group to be created: its parent, the split that creates it, and its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupPlan {
    /// Identifier of the parent group on this rank.
    pub(super) parent: usize,
    /// Sequence number, among the parent's collectives, of the split that creates the group. `None`
    /// for a group from a list of ranks.
    pub(super) split: Option<u64>,
    /// Ranks of the group, in its order, numbered in the parent.
    pub(super) ranks: Vec<usize>,
}

/// Groups that are being created, and groups that were created from a list of ranks.
#[derive(Debug, Default)]
pub(super) struct GroupPlans {
    /// Groups created from a list of ranks, with their identifiers on this rank. `None` while a
    /// thread creates the group.
    pub(super) listed: HashMap<GroupPlan, Option<usize>>,
    /// Members that have called for a group, by their ranks in the parent, with the `groups_led`
    /// that each sent.
    pub(super) arrivals: HashMap<GroupPlan, HashMap<usize, u64>>,
    /// Messages of members that are being received: the parent's identifier, the member's rank in
    /// it, and the message.
    pub(super) incoming: Vec<(usize, usize, Transfer)>,
}

impl GroupPlans {
    /// Removes the groups that were created from a list of ranks of `parent`, and returns their
    /// identifiers.
    pub(super) fn remove_children_of(&mut self, parent: usize) -> Vec<usize> {
        let listed = self.listed.iter().filter(|(plan, _)| plan.parent == parent);
        let groups = listed.filter_map(|(_, group)| *group).collect();
        self.listed.retain(|plan, _| plan.parent != parent);
        groups
    }

    /// Removes the arrivals at subgroups of `parent`. They remain if this rank has never called for
    /// the subgroup.
    pub(super) fn remove_arrivals_of(&mut self, parent: usize) {
        self.arrivals.retain(|plan, _| plan.parent != parent);
    }
}

impl GroupPlan {
    /// Returns this member's message to the others: `groups_led`, the split, and the ranks.
    /// `groups_led` is the number of subgroups of the parent that this member has led; that of the
    /// first member makes the communicator's tag unique.
    pub(super) fn encode(&self, groups_led: u64) -> Vec<u64> {
        let ranks = self.ranks.iter().map(|&rank| rank as u64);
        // Sequence numbers of splits begin with 0.
        [groups_led, self.split.map_or(0, |sequence| sequence + 1)].into_iter().chain(ranks).collect()
    }

    /// Decodes a message of [`encode`](Self::encode) into the plan and `groups_led`. `parent` is
    /// the identifier of the parent on this rank. `None` if the message is too short.
    pub(super) fn decode(parent: usize, words: &[u64]) -> Option<(Self, u64)> {
        let (&[groups_led, split], ranks) = words.split_first_chunk::<2>()?;
        let ranks = ranks.iter().map(|&rank| rank as usize).collect();
        Some((Self { parent, split: split.checked_sub(1), ranks }, groups_led))
    }

    /// Returns the call that creates the group, for error messages.
    pub(super) fn call(&self) -> Call {
        Call { operation: Operation::Group { ranks: self.ranks.clone() }, element: None }
    }
}

//! Groups under creation, and their members that have called for them.

use std::collections::HashMap;

use super::transfer::Transfer;
use crate::{Call, Operation};

/// Identifier of a group to be created: its parent, the sequence number of the split (`None` for a
/// list of ranks), and its ranks in the parent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupPlan {
    /// Number of the parent group on this rank.
    pub(super) parent: usize,
    /// Sequence number of the split. `None` for a group from a list of ranks.
    pub(super) split: Option<u64>,
    /// Ranks of the group, as numbered in the parent.
    pub(super) ranks: Vec<usize>,
}

/// Groups that are being created, and groups that were created from a list of ranks.
#[derive(Debug, Default)]
pub(super) struct GroupPlans {
    /// Groups created from a list of ranks. `None` while a thread creates the group.
    pub(super) listed: HashMap<GroupPlan, Option<usize>>,
    /// Members that have called for a group, with the number that each sent.
    pub(super) arrivals: HashMap<GroupPlan, HashMap<usize, u64>>,
    /// Messages of members that are being received: the parent, the member and the message.
    pub(super) incoming: Vec<(usize, usize, Transfer)>,
}

impl GroupPlans {
    /// Removes the groups that were created from a list of ranks of `parent`, and returns them.
    pub(super) fn remove_children_of(&mut self, parent: usize) -> Vec<usize> {
        let listed = self.listed.iter().filter(|(plan, _)| plan.parent == parent);
        let groups = listed.filter_map(|(_, group)| *group).collect();
        self.listed.retain(|plan, _| plan.parent != parent);
        groups
    }

    /// Removes the messages of members that called for a subgroup of `parent`, for which this rank
    /// never called.
    pub(super) fn remove_arrivals_of(&mut self, parent: usize) {
        self.arrivals.retain(|plan, _| plan.parent != parent);
    }
}

impl GroupPlan {
    /// Returns this member's message to the others. `groups_led` makes the communicator's tag
    /// unique.
    pub(super) fn encode(&self, groups_led: u64) -> Vec<u64> {
        let ranks = self.ranks.iter().map(|&rank| rank as u64);
        // Sequence numbers of splits begin with 0.
        [groups_led, self.split.map_or(0, |sequence| sequence + 1)].into_iter().chain(ranks).collect()
    }

    /// Decodes a message of [`encode`](Self::encode): the plan and `groups_led`. `None`
    /// if it is too short.
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

//! Groups under creation, and the members that have called for them. The *description* of a group
//! is the same on all its members except for `parent`, which is an identifier on this rank.

use std::collections::HashMap;

use super::transfer::Transfer;
use crate::{Call, Operation};

/// Description of a group to be created: its parent, the split that creates it, and its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct GroupDescription {
    /// Identifier of the parent group on this rank.
    pub(super) parent: usize,
    /// Sequence number, among the parent's collectives, of the split that creates the group. `None`
    /// for a group from a list of ranks.
    pub(super) split: Option<u64>,
    /// Ranks of the group, in its order, numbered in the parent.
    pub(super) ranks: Vec<usize>,
}

/// Subgroups that are being created, and subgroups that were created from a list of ranks.
#[derive(Debug, Default)]
pub(super) struct SubgroupRegistry {
    /// Groups created from a list of ranks, with their identifiers on this rank. `None` while a
    /// thread creates the group.
    pub(super) listed: HashMap<GroupDescription, Option<usize>>,
    /// Members that have called for a group, by their ranks in the parent, each with the
    /// `subgroups_begun` that it sent; see `GroupDescription::encode`.
    pub(super) arrivals: HashMap<GroupDescription, HashMap<usize, u64>>,
    /// Messages of members that are being received: the parent's identifier, the member's rank in
    /// it, and the message.
    pub(super) incoming: Vec<(usize, usize, Transfer)>,
}

impl SubgroupRegistry {
    /// Removes the groups that were created from a list of ranks of `parent`, and returns their
    /// identifiers.
    pub(super) fn remove_children_of(&mut self, parent: usize) -> Vec<usize> {
        let listed = self.listed.iter().filter(|(description, _)| description.parent == parent);
        let groups = listed.filter_map(|(_, group)| *group).collect();
        self.listed.retain(|description, _| description.parent != parent);
        groups
    }

    /// Removes the arrivals at subgroups of `parent`. They remain if this rank has never called for
    /// the subgroup.
    pub(super) fn remove_arrivals_of(&mut self, parent: usize) {
        self.arrivals.retain(|description, _| description.parent != parent);
    }
}

impl GroupDescription {
    /// Returns this member's message to the others: `subgroups_begun`, the split, and the ranks.
    /// `subgroups_begun` is the number of subgroups of the parent whose creation this member has
    /// begun before. That of the first member makes the communicator's tag unique.
    pub(super) fn encode(&self, subgroups_begun: u64) -> Vec<u64> {
        let ranks = self.ranks.iter().map(|&rank| rank as u64);
        // Sequence numbers of splits begin with 0.
        [subgroups_begun, self.split.map_or(0, |sequence| sequence + 1)].into_iter().chain(ranks).collect()
    }

    /// Decodes a message of [`encode`](Self::encode) into the description and `subgroups_begun`.
    /// `parent` is the identifier of the parent on this rank. `None` if the message is too short.
    pub(super) fn decode(parent: usize, words: &[u64]) -> Option<(Self, u64)> {
        let (&[subgroups_begun, split], ranks) = words.split_first_chunk::<2>()?;
        let ranks = ranks.iter().map(|&rank| rank as usize).collect();
        Some((Self { parent, split: split.checked_sub(1), ranks }, subgroups_begun))
    }

    /// Returns the call that creates the group, for error messages.
    pub(super) fn call(&self) -> Call {
        Call { operation: Operation::Group { ranks: self.ranks.clone() }, element: None }
    }
}

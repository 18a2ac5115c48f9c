//! State of the groups of this rank.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Index, IndexMut};
use std::time::Instant;

use super::library::Comm;
use crate::{Error, Result};

/// A group that contains this rank.
#[derive(Debug)]
pub(super) struct MpiGroup {
    pub(super) comm: Comm,
    /// Ranks of the members in the world.
    pub(super) members: Vec<usize>,
    /// This rank's number in the group.
    pub(super) rank: usize,
    /// Sequence number of the next collective.
    pub(super) next_sequence: u64,
    /// Number of created subgroups whose first member is this rank.
    pub(super) groups_led: u64,
    /// Number of communicators in the program, plus one if the group was created from a list of
    /// ranks.
    pub(super) handles: usize,
    /// Members that have left.
    pub(super) left: HashSet<usize>,
    /// Whether this rank has left.
    pub(super) has_left: bool,
    /// Time of the last poll for the group's notices.
    pub(super) notices_polled: Option<Instant>,
    /// Error because of which the group cannot be used any more.
    pub(super) failure: Option<Error>,
}

impl MpiGroup {
    pub(super) fn new(comm: Comm, members: Vec<usize>, rank: usize) -> Self {
        Self {
            comm,
            members,
            rank,
            next_sequence: 0,
            groups_led: 0,
            handles: 0,
            left: HashSet::new(),
            has_left: false,
            notices_polled: None,
            failure: None,
        }
    }

    /// Returns the group's error if it has failed.
    pub(super) fn usable(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns this rank's number in the world.
    pub(super) fn world_rank(&self) -> usize {
        self.members[self.rank]
    }

    /// Returns the numbers of all other members.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.members.len()).filter(move |&member| member != rank)
    }
}

/// Groups of this rank by identifiers, which are never reused.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_id: BTreeMap<usize, MpiGroup>,
    next: usize,
}

impl Groups {
    /// Adds a group and returns its identifier.
    pub(super) fn add(&mut self, group: MpiGroup) -> usize {
        self.by_id.insert(self.next, group);
        self.next += 1;
        self.next - 1
    }

    pub(super) fn remove(&mut self, group: usize) -> Option<MpiGroup> {
        self.by_id.remove(&group)
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the identifiers of at most `count` groups, starting at `first`.
    pub(super) fn ids_from(&self, first: usize, count: usize) -> Vec<usize> {
        self.by_id.range(first..).map(|(&group, _)| group).take(count).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &MpiGroup> {
        self.by_id.values()
    }
}

impl Index<usize> for Groups {
    type Output = MpiGroup;

    fn index(&self, group: usize) -> &MpiGroup {
        &self.by_id[&group]
    }
}

impl IndexMut<usize> for Groups {
    fn index_mut(&mut self, group: usize) -> &mut MpiGroup {
        self.by_id.get_mut(&group).expect("a group exists while it has a handle or a pending operation")
    }
}

//! What this rank knows about one group.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Index, IndexMut};
use std::time::Instant;

use super::library::Comm;
use crate::{Error, Result};

/// A group that this rank is in.
#[derive(Debug)]
pub(super) struct GroupState {
    pub(super) comm: Comm,
    /// The world's ranks, by their place in the group.
    pub(super) members: Vec<usize>,
    /// This rank's place.
    pub(super) rank: usize,
    /// The number of the next collective.
    pub(super) next_sequence: u64,
    /// Subgroups of which this rank has been the first member.
    pub(super) groups_led: u64,
    /// Communicators of the program, and one more if the group was created from a list of ranks.
    pub(super) handles: usize,
    /// The members that have left.
    pub(super) left: HashSet<usize>,
    /// Whether this rank has left.
    pub(super) has_left: bool,
    /// When this rank last received the group's notices.
    pub(super) notices_polled: Option<Instant>,
    /// Why the group cannot be used any more.
    pub(super) failure: Option<Error>,
}

impl GroupState {
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

    /// The group's failure, if it has failed.
    pub(super) fn usable(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// This rank in the world.
    pub(super) fn world_rank(&self) -> usize {
        self.members[self.rank]
    }

    /// The places of all other members.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.members.len()).filter(move |&member| member != rank)
    }
}

/// The groups that this rank is in, by numbers that are not used again.
#[derive(Debug, Default)]
pub(super) struct Groups {
    there: BTreeMap<usize, GroupState>,
    next: usize,
}

impl Groups {
    /// Adds a group and gives its number.
    pub(super) fn add(&mut self, group: GroupState) -> usize {
        self.there.insert(self.next, group);
        self.next += 1;
        self.next - 1
    }

    pub(super) fn remove(&mut self, group: usize) -> Option<GroupState> {
        self.there.remove(&group)
    }

    pub(super) fn len(&self) -> usize {
        self.there.len()
    }

    /// The numbers of at most `count` groups from a number on.
    pub(super) fn from(&self, first: usize, count: usize) -> Vec<usize> {
        self.there.range(first..).map(|(&group, _)| group).take(count).collect()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &GroupState> {
        self.there.values()
    }
}

impl Index<usize> for Groups {
    type Output = GroupState;

    fn index(&self, group: usize) -> &GroupState {
        &self.there[&group]
    }
}

impl IndexMut<usize> for Groups {
    fn index_mut(&mut self, group: usize) -> &mut GroupState {
        self.there.get_mut(&group).expect("a group stays as long as it has a handle or anything under way")
    }
}

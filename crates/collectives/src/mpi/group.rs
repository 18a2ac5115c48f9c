//! State of the groups of this rank. A group has an identifier, which is a number on this rank
//! only. Members are numbered from 0 in the group. The *world* is the set of all ranks. *Notices*
//! are messages between members about liveness, departures and failures.

use std::collections::{BTreeMap, HashSet};
use std::ops::{Index, IndexMut};
use std::time::Instant;

use super::library::Comm;
use crate::{Error, Result};

/// A group that contains this rank.
#[derive(Debug)]
pub(super) struct MpiGroup {
    /// Communicator of the library for the group.
    pub(super) comm: Comm,
    /// Rank in the world of each member, indexed by its number in the group.
    pub(super) members: Vec<usize>,
    /// This rank's number in the group.
    pub(super) rank: usize,
    /// Sequence number of the next collective, from 0.
    pub(super) next_sequence: u64,
    /// Number of subgroups whose creation this rank has begun. The number of a subgroup's first
    /// member is part of the tag with which MPI creates it, so that the tags are distinct.
    pub(super) subgroups_begun: u64,
    /// Number of handles: communicators in the program, plus one if the group was created from a
    /// list of ranks. The group is freed after the last one.
    pub(super) handles: usize,
    /// Members that have left the group, by number in the group. A member leaves when it has
    /// dropped its last handle.
    pub(super) left: HashSet<usize>,
    /// Whether this rank has left the group.
    pub(super) has_left: bool,
    /// Time of the last poll for the group's notices. `None` before the first.
    pub(super) notices_polled: Option<Instant>,
    /// Error because of which the group cannot be used any more. `None` if it has not failed.
    pub(super) failure: Option<Error>,
}

impl MpiGroup {
    /// Creates a group without handles. `members` are ranks of the world, `rank` is this rank's
    /// number among them.
    pub(super) fn new(comm: Comm, members: Vec<usize>, rank: usize) -> Self {
        Self {
            comm,
            members,
            rank,
            next_sequence: 0,
            subgroups_begun: 0,
            handles: 0,
            left: HashSet::new(),
            has_left: false,
            notices_polled: None,
            failure: None,
        }
    }

    /// Checks that the group has not failed.
    ///
    /// # Errors
    /// The error with which it has failed.
    pub(super) fn usable(&self) -> Result<()> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns this rank's number in the world.
    pub(super) fn world_rank(&self) -> usize {
        self.members[self.rank]
    }

    /// Returns the numbers in the group of all members except this rank.
    pub(super) fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.rank;
        (0..self.members.len()).filter(move |&member| member != rank)
    }
}

/// Groups of this rank by identifier. Identifiers ascend from 0 and are never reused.
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

    /// Removes a group by its identifier. `None` if there is no such group.
    pub(super) fn remove(&mut self, group: usize) -> Option<MpiGroup> {
        self.by_id.remove(&group)
    }

    /// Returns the number of groups.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Returns the identifiers of at most `count` groups, in ascending order from `first`.
    pub(super) fn ids_from(&self, first: usize, count: usize) -> Vec<usize> {
        self.by_id.range(first..).map(|(&group, _)| group).take(count).collect()
    }

    /// Returns the groups in ascending order of identifiers.
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

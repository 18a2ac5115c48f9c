//! What this rank knows about one group.

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
    /// Subgroups that this rank has been the first member of.
    pub(super) founded: u64,
    /// Why the group cannot be used any more.
    pub(super) failure: Option<Error>,
}

impl GroupState {
    pub(super) fn new(comm: Comm, members: Vec<usize>, rank: usize) -> Self {
        Self { comm, members, rank, next_sequence: 0, founded: 0, failure: None }
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

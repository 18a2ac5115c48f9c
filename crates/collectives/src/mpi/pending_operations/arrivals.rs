//! Arrival of members that create a subgroup. A member *arrives* by sending a message that it has
//! called for the subgroup to all other members. Errors fail the parent group. Groups are named by
//! their identifiers on this rank.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::PendingOperations;
use crate::mpi::group_description::{GroupDescription, SubgroupRegistry};
use crate::mpi::library::{self, LibraryFailure};
use crate::mpi::tags::{self, TagKind};
use crate::mpi::transfer::Transfer;
use crate::{Error, Result};

impl PendingOperations {
    /// Tells the other members that this rank has called for the group of `description`. `place` is
    /// this rank's number in the new group, `subgroups_begun` the number of subgroups of the parent
    /// whose creation this rank has begun before.
    ///
    /// # Errors
    /// `Error::Library` if MPI cannot send a message.
    pub(in crate::mpi) fn announce(
        &mut self,
        description: &GroupDescription,
        place: usize,
        subgroups_begun: u64,
    ) -> Result<()> {
        let words = Arc::new(description.encode(subgroups_begun));
        let call = description.call();
        let others = description.ranks.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, &rank) in others {
            self.post(description.parent, &call, rank, tags::GROUP, &words)
                .map_err(|failure| self.fail_parent_for_library(description, failure))?;
        }
        Ok(())
    }

    /// Receives the messages of members that have called for this group or for another one of the
    /// same parent, without waiting.
    ///
    /// # Errors
    /// The error of the parent if it has failed, or `Error::Library` if MPI cannot receive a
    /// message.
    pub(in crate::mpi) fn receive_arrivals(&mut self, description: &GroupDescription) -> Result<()> {
        self.groups[description.parent].usable()?;
        self.try_receive_arrivals(description.parent)
            .map_err(|failure| self.fail_parent_for_library(description, failure))
    }

    fn try_receive_arrivals(&mut self, parent: usize) -> std::result::Result<(), LibraryFailure> {
        let comm = self.groups[parent].comm;
        let SubgroupRegistry { arrivals, incoming, .. } = &mut self.subgroups;
        while let Some((member, words)) = library::probe(comm, tags::GROUP)? {
            incoming.push((parent, member, Transfer::receive_words(comm, member, tags::GROUP, words)?));
        }
        for (_, _, transfer) in incoming.iter_mut() {
            transfer.test()?;
        }
        incoming.retain(|(parent, member, transfer)| {
            let Some(words) = transfer.words() else { return true };
            if let Some((description, subgroups_begun)) = GroupDescription::decode(*parent, words) {
                arrivals.entry(description).or_default().insert(*member, subgroups_begun);
            }
            false
        });
        Ok(())
    }

    /// Returns MPI's tag for the creation of a communicator, which no other communicator of the
    /// same parent has. It is computed from `first`, the rank in the parent of the new group's
    /// first member, and `number`, the `subgroups_begun` that this member has announced.
    ///
    /// # Errors
    /// `Error::Library` if no tag is left.
    pub(in crate::mpi) fn communicator_tag(
        &self,
        description: &GroupDescription,
        first: usize,
        number: u64,
    ) -> Result<c_int> {
        let size = self.groups[description.parent].members.len() as u64;
        let number = number.checked_mul(size).and_then(|number| number.checked_add(first as u64));
        number.and_then(|number| tags::tag(TagKind::Communicator, number, self.max_tag)).ok_or_else(|| {
            let failure = LibraryFailure("no tag for a new communicator is left".into());
            failure.error(self.groups[description.parent].world_rank(), &description.call())
        })
    }

    /// Fails the parent of a group for which some members have not called within `waited`, and
    /// returns the error, which names them. `place` is this rank's number in the new group.
    pub(in crate::mpi) fn fail_for_missing_members(
        &mut self,
        description: &GroupDescription,
        place: usize,
        waited: Duration,
    ) -> Error {
        let arrived = self.subgroups.arrivals.remove(description).unwrap_or_default();
        let parent = &self.groups[description.parent];
        let absent = |(other, rank): &(usize, &usize)| *other != place && !arrived.contains_key(*rank);
        let missing =
            description.ranks.iter().enumerate().filter(absent).map(|(_, &rank)| parent.members[rank]);
        let error = Error::TimedOut { missing: missing.collect(), call: description.call(), waited };
        self.fail_group(description.parent, error)
    }

    fn fail_parent_for_library(&mut self, description: &GroupDescription, failure: LibraryFailure) -> Error {
        let error = failure.error(self.groups[description.parent].world_rank(), &description.call());
        self.fail_group(description.parent, error)
    }
}

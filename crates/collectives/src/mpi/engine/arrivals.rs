//! Arrival of members that create a subgroup. A member *arrives* by sending a message that it has
//! called for the subgroup to all other members. Errors fail the parent group. Groups are named by
//! their identifiers on this rank.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::mpi::group_plan::{GroupPlan, GroupPlans};
use crate::mpi::library::{self, LibraryFailure};
use crate::mpi::tags::{self, TagKind};
use crate::mpi::transfer::Transfer;
use crate::{Error, Result};

impl Engine {
    /// Tells the other members that this rank has called for the group of `plan`. `place` is this
    /// rank's number in the new group, `groups_led` the number of subgroups that it has led before.
    ///
    /// # Errors
    /// An error of the library.
    pub(in crate::mpi) fn announce(&mut self, plan: &GroupPlan, place: usize, groups_led: u64) -> Result<()> {
        let words = Arc::new(plan.encode(groups_led));
        let call = plan.call();
        let others = plan.ranks.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, &rank) in others {
            self.post(plan.parent, &call, rank, tags::GROUP, &words)
                .map_err(|failure| self.fail_parent_for_library(plan, failure))?;
        }
        Ok(())
    }

    /// Receives the messages of members that have called for this group or for another one of the
    /// same parent, without waiting.
    ///
    /// # Errors
    /// The error of the parent if it has failed, or an error of the library.
    pub(in crate::mpi) fn receive_arrivals(&mut self, plan: &GroupPlan) -> Result<()> {
        self.groups[plan.parent].usable()?;
        self.try_receive_arrivals(plan.parent).map_err(|failure| self.fail_parent_for_library(plan, failure))
    }

    fn try_receive_arrivals(&mut self, parent: usize) -> std::result::Result<(), LibraryFailure> {
        let comm = self.groups[parent].comm;
        let GroupPlans { arrivals, incoming, .. } = &mut self.plans;
        while let Some((member, words)) = library::probe(comm, tags::GROUP)? {
            incoming.push((parent, member, Transfer::receive_words(comm, member, tags::GROUP, words)?));
        }
        for (_, _, transfer) in incoming.iter_mut() {
            transfer.test()?;
        }
        incoming.retain(|(parent, member, transfer)| {
            let Some(words) = transfer.words() else { return true };
            if let Some((plan, groups_led)) = GroupPlan::decode(*parent, words) {
                arrivals.entry(plan).or_default().insert(*member, groups_led);
            }
            false
        });
        Ok(())
    }

    /// Returns MPI's tag for the creation of a communicator, which no other communicator of the
    /// same parent has. It is computed from `first`, the rank in the parent of the new group's
    /// first member, and `number`, the number of groups that this member has led before.
    ///
    /// # Errors
    /// An error of the library if no tag is left.
    pub(in crate::mpi) fn communicator_tag(
        &self,
        plan: &GroupPlan,
        first: usize,
        number: u64,
    ) -> Result<c_int> {
        let size = self.groups[plan.parent].members.len() as u64;
        let number = number.checked_mul(size).and_then(|number| number.checked_add(first as u64));
        number.and_then(|number| tags::tag(TagKind::Communicator, number, self.max_tag)).ok_or_else(|| {
            let failure = LibraryFailure("no tag for a new communicator is left".into());
            failure.error(self.groups[plan.parent].world_rank(), &plan.call())
        })
    }

    /// Fails the parent of a group for which some members have not called within `waited`, and
    /// returns the error, which names them. `place` is this rank's number in the new group.
    pub(in crate::mpi) fn fail_for_missing_members(
        &mut self,
        plan: &GroupPlan,
        place: usize,
        waited: Duration,
    ) -> Error {
        let arrived = self.plans.arrivals.remove(plan).unwrap_or_default();
        let parent = &self.groups[plan.parent];
        let absent = |(other, rank): &(usize, &usize)| *other != place && !arrived.contains_key(*rank);
        let missing = plan.ranks.iter().enumerate().filter(absent).map(|(_, &rank)| parent.members[rank]);
        let error = Error::TimedOut { missing: missing.collect(), call: plan.call(), waited };
        self.fail_group(plan.parent, error)
    }

    fn fail_parent_for_library(&mut self, plan: &GroupPlan, failure: LibraryFailure) -> Error {
        let error = failure.error(self.groups[plan.parent].world_rank(), &plan.call());
        self.fail_group(plan.parent, error)
    }
}

//! The members that have come to make a subgroup.

use std::ffi::c_int;
use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use crate::mpi::group_plan::{GroupPlan, GroupPlans};
use crate::mpi::library::{self, Failure};
use crate::mpi::tags::{self, Kind};
use crate::mpi::transfer::Transfer;
use crate::{Error, Result};

impl Engine {
    pub(in crate::mpi) fn announce(&mut self, plan: &GroupPlan, place: usize, groups_led: u64) -> Result<()> {
        let words = Arc::new(plan.encode(groups_led));
        let call = plan.call();
        let others = plan.ranks.iter().enumerate().filter(|(other, _)| *other != place);
        for (_, &rank) in others {
            self.post(plan.parent, &call, rank, tags::GROUP, &words)
                .map_err(|failure| self.library_failed(plan, failure))?;
        }
        Ok(())
    }

    /// Receives the messages of members that call for this group or another one of the same parent.
    pub(in crate::mpi) fn receive_arrivals(&mut self, plan: &GroupPlan) -> Result<()> {
        self.groups[plan.parent].usable()?;
        self.try_receive_arrivals(plan.parent).map_err(|failure| self.library_failed(plan, failure))
    }

    fn try_receive_arrivals(&mut self, parent: usize) -> std::result::Result<(), Failure> {
        let comm = self.groups[parent].comm;
        let GroupPlans { arrivals, arriving, .. } = &mut self.plans;
        while let Some((member, words)) = library::probe(comm, tags::GROUP)? {
            arriving.push((parent, member, Transfer::receive_words(comm, member, tags::GROUP, words)?));
        }
        for (_, _, transfer) in arriving.iter_mut() {
            transfer.test()?;
        }
        arriving.retain(|(parent, member, transfer)| {
            let Some(words) = transfer.words() else { return true };
            if let Some((plan, groups_led)) = GroupPlan::decode(*parent, words) {
                arrivals.entry(plan).or_default().insert(*member, groups_led);
            }
            false
        });
        Ok(())
    }

    /// A tag that no other communicator of the same parent has: from the first member's count of the groups that it was
    /// the first of, and its rank.
    pub(in crate::mpi) fn communicator_tag(
        &self,
        plan: &GroupPlan,
        first: usize,
        number: u64,
    ) -> Result<c_int> {
        let size = self.groups[plan.parent].members.len() as u64;
        let number = number.checked_mul(size).and_then(|number| number.checked_add(first as u64));
        number.and_then(|number| tags::tag(Kind::Communicator, number, self.largest_tag)).ok_or_else(|| {
            let failure = Failure("all tags for new communicators are used up".into());
            failure.error(self.groups[plan.parent].world_rank(), &plan.call())
        })
    }

    pub(in crate::mpi) fn members_missing(
        &mut self,
        plan: &GroupPlan,
        place: usize,
        waited: Duration,
    ) -> Error {
        let come = self.plans.arrivals.remove(plan).unwrap_or_default();
        let parent = &self.groups[plan.parent];
        let absent = |(other, rank): &(usize, &usize)| *other != place && !come.contains_key(*rank);
        let missing = plan.ranks.iter().enumerate().filter(absent).map(|(_, &rank)| parent.members[rank]);
        let error = Error::TimedOut { missing: missing.collect(), call: plan.call(), waited };
        self.fail_group(plan.parent, error)
    }

    fn library_failed(&mut self, plan: &GroupPlan, failure: Failure) -> Error {
        let error = failure.error(self.groups[plan.parent].world_rank(), &plan.call());
        self.fail_group(plan.parent, error)
    }
}

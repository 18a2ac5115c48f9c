//! Freeing groups that are not used any more.
//!
//! MPI reuses the context ids of its communicators, so a message that arrives after its communicator was freed would be
//! matched by one of a later communicator. Therefore a member notifies the others when it leaves a group, which is the last
//! message that it sends in it, and a member that has received this from all others frees its communicator. MPI does so
//! without waiting for other ranks.

use super::notices::GROUPS_AT_A_TIME;
use super::{Engine, WORLD};
use crate::mpi::library;

impl Engine {
    /// Another handle to a group.
    pub(in crate::mpi) fn retain(&mut self, group: usize) {
        self.groups[group].handles += 1;
    }

    /// One handle less. With the last one, the group is freed as soon as nothing of it is pending on any rank.
    pub(in crate::mpi) fn release(&mut self, group: usize) {
        let state = &mut self.groups[group];
        state.handles -= 1;
        if state.handles > 0 || group == WORLD {
            return;
        }
        self.released.push(group);
        for subgroup in self.plans.forget_those_of(group) {
            self.release(subgroup);
        }
        self.free_released_groups();
    }

    /// Frees some of the groups that have no handles, as far as that is possible now.
    pub(in crate::mpi) fn free_released_groups(&mut self) {
        let some = self.released.len().min(GROUPS_AT_A_TIME);
        let mut turn: Vec<usize> = self.released.drain(..some).collect();
        turn.retain(|&group| !self.try_free(group));
        self.released.extend(turn);
    }

    /// Leaves a group and frees its communicator, if all members have left; whether this rank is done with it.
    fn try_free(&mut self, group: usize) -> bool {
        if self.is_busy_in(group) {
            return false;
        }
        if !self.groups[group].has_left && self.groups[group].failure.is_none() {
            self.groups[group].has_left = true;
            self.notify_leaving(group);
        }
        let all_received = self.poll_notices_of(group);
        let state = &self.groups[group];
        // MPI may never complete the operations of a group that has failed: its communicator is not freed.
        if state.failure.is_some() {
            return true;
        }
        if !all_received || state.left.len() + 1 < state.members.len() || self.is_busy_in(group) {
            return false;
        }
        let state = self.groups.remove(group);
        self.notices.forget(group);
        self.plans.forget_arrivals_of(group);
        if let Some(Err(failure)) = state.map(|state| library::free(state.comm)) {
            self.library_failed_in_notices(WORLD, failure);
        }
        true
    }
}

//! Freeing of groups that are no longer used. A *handle* of a group is a communicator of the
//! program, or the entry of a group that was created from a list of ranks. Groups are named by
//! their identifiers on this rank.
//!
//! MPI reuses the context identifiers of its communicators: a message that arrives after its
//! communicator was freed would be matched with one of a later communicator. A member therefore
//! notifies the others when it leaves a group, which is its last message in the group. A member
//! that has received this notice from all others frees its communicator. MPI does so without
//! waiting for other ranks.

use super::notices::MAX_GROUPS_PER_POLL;
use super::{PendingOperations, WORLD};
use crate::mpi::library;

impl PendingOperations {
    /// Adds a handle of a group.
    pub(in crate::mpi) fn retain(&mut self, group: usize) {
        self.groups[group].handles += 1;
    }

    /// Removes a handle of a group. After the last one, this rank leaves the group and the groups
    /// created from lists of its ranks. The group is freed when nothing of it is pending on any
    /// rank.
    pub(in crate::mpi) fn release(&mut self, group: usize) {
        let state = &mut self.groups[group];
        state.handles -= 1;
        if state.handles > 0 || group == WORLD {
            return;
        }
        self.released.push(group);
        for subgroup in self.subgroups.remove_children_of(group) {
            self.release(subgroup);
        }
        self.free_released_groups();
    }

    /// Frees groups without handles, as far as all their members have left. Tries at most
    /// [`MAX_GROUPS_PER_POLL`] groups.
    pub(in crate::mpi) fn free_released_groups(&mut self) {
        let count = self.released.len().min(MAX_GROUPS_PER_POLL);
        let mut batch: Vec<usize> = self.released.drain(..count).collect();
        batch.retain(|&group| !self.try_free(group));
        self.released.extend(batch);
    }

    /// Leaves a group, and frees its communicator if all members have left. Returns whether this
    /// rank is done with the group.
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
        // MPI may never complete the operations of a failed group: its communicator is not freed.
        if state.failure.is_some() {
            return true;
        }
        if !all_received || state.left.len() + 1 < state.members.len() || self.is_busy_in(group) {
            return false;
        }
        let state = self.groups.remove(group);
        self.notices.remove_group(group);
        self.subgroups.remove_arrivals_of(group);
        if let Some(Err(failure)) = state.map(|state| library::free(state.comm)) {
            self.fail_group_for_library(WORLD, failure);
        }
        true
    }
}

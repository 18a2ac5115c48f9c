//! Groups that nobody needs any more.
//!
//! MPI uses the numbers of its communicators again, so a message that comes after its communicator is gone would be taken
//! for one of the next. Therefore the members of a group take leave of each other: a goodbye is the last thing that one
//! sends in the group, and who has those of all others frees its communicator, which MPI does without waiting for anyone.

use super::engine::{EVERYONE, Engine};
use super::library;
use super::news::GROUPS_AT_A_TIME;

impl Engine {
    /// Another handle to a group.
    pub(super) fn hold(&mut self, group: usize) {
        self.groups[group].handles += 1;
    }

    /// One handle less. With the last one, the group goes as soon as nothing of it is under way anywhere.
    pub(super) fn release(&mut self, group: usize) {
        let state = &mut self.groups[group];
        state.handles -= 1;
        if state.handles > 0 || group == EVERYONE {
            return;
        }
        self.leaving.push(group);
        for subgroup in self.formations.forget_those_of(group) {
            self.release(subgroup);
        }
        self.take_leave();
    }

    /// Goes on with some of the groups that are being left.
    pub(super) fn take_leave(&mut self) {
        let some = self.leaving.len().min(GROUPS_AT_A_TIME);
        let mut turn: Vec<usize> = self.leaving.drain(..some).collect();
        turn.retain(|&group| !self.has_left(group));
        self.leaving.extend(turn);
    }

    /// Whether this rank has nothing to do with a group any more.
    fn has_left(&mut self, group: usize) -> bool {
        if self.is_busy_in(group) {
            return false;
        }
        if !self.groups[group].said_goodbye && self.groups[group].failure.is_none() {
            self.groups[group].said_goodbye = true;
            self.say_goodbye(group);
        }
        let all_heard = self.hear(group);
        let state = &self.groups[group];
        // The library may work on in a group that failed, for ever.
        if state.failure.is_some() {
            return true;
        }
        if !all_heard || state.gone.len() + 1 < state.members.len() || self.is_busy_in(group) {
            return false;
        }
        let state = self.groups.remove(group);
        self.news.forget(group);
        self.formations.forget_arrivals_of(group);
        if let Some(Err(failure)) = state.map(|state| library::free(state.comm)) {
            self.library_failed_in_news(EVERYONE, failure);
        }
        true
    }
}

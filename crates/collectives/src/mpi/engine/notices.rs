//! Sending and receiving notices, and what follows from them.
//!
//! They name the ranks that are really missing where an operation stops half-way, and make a failure the same on all
//! ranks, also on those that are late: these read the notices before they match old headers of the others with their own
//! call. Otherwise notices are only polled once an operation has lasted a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Engine;
use crate::mpi::library::{self, Failure};
use crate::mpi::notice::Notice;
use crate::mpi::tags;
use crate::mpi::transfer::Transfer;
use crate::{Call, Error, Operation};

/// How long an operation is pending before its rank polls for notices.
pub(super) const NOTICES_AFTER: Duration = Duration::from_millis(10);

/// How often it does then.
pub(in crate::mpi) const NOTICES_EVERY: Duration = Duration::from_millis(2);

/// How many groups it polls at a time: a program may have thousands.
pub(super) const GROUPS_AT_A_TIME: usize = 32;

/// The notices of all groups.
#[derive(Debug, Default)]
pub(super) struct Notices {
    polled: Option<Instant>,
    /// The group to begin with next time.
    turn: usize,
    /// Notices that are being received: the group, the member and the message.
    arriving: Vec<(usize, usize, Transfer)>,
    /// When the last notice of a member of a group was received.
    last_heard: HashMap<(usize, usize), Instant>,
}

impl Notices {
    pub(super) fn forget(&mut self, group: usize) {
        self.last_heard.retain(|(other, _), _| *other != group);
    }
}

impl Engine {
    /// Receives notices of all groups, unless that was done a moment ago.
    pub(in crate::mpi) fn poll_notices(&mut self, now: Instant) {
        let recent = |polled: Instant| now.saturating_duration_since(polled) < NOTICES_EVERY;
        if self.notices.polled.is_some_and(recent) {
            return;
        }
        self.notices.polled = Some(now);
        let mut turn = self.groups.from(self.notices.turn, GROUPS_AT_A_TIME);
        if turn.len() < GROUPS_AT_A_TIME {
            let rest = (GROUPS_AT_A_TIME - turn.len()).min(self.groups.len() - turn.len());
            turn.extend(self.groups.from(0, rest));
        }
        self.notices.turn = turn.last().map_or(0, |last| last + 1);
        for group in turn {
            if let Err(failure) = self.receive_notices(group) {
                self.library_failed_in_notices(group, failure);
            }
        }
        self.handle_arrived_notices(now);
        self.free_released_groups();
    }

    /// Whether the notices of a group were received a moment ago, and none is still being received.
    pub(in crate::mpi) fn has_polled_notices_of(&self, group: usize, now: Instant) -> bool {
        let recent = |polled: Instant| now.saturating_duration_since(polled) < NOTICES_EVERY;
        self.groups[group].notices_polled.is_some_and(recent) && !self.is_receiving_notices_of(group)
    }

    fn is_receiving_notices_of(&self, group: usize) -> bool {
        self.notices.arriving.iter().any(|(other, ..)| *other == group)
    }

    /// Receives the notices of one group; whether none is still being received.
    pub(in crate::mpi) fn poll_notices_of(&mut self, group: usize) -> bool {
        if let Err(failure) = self.receive_notices(group) {
            self.library_failed_in_notices(group, failure);
        }
        if !self.notices.arriving.is_empty() {
            self.handle_arrived_notices(Instant::now());
        }
        !self.is_receiving_notices_of(group)
    }

    fn handle_arrived_notices(&mut self, now: Instant) {
        let mut arriving = std::mem::take(&mut self.notices.arriving);
        arriving.retain_mut(|(group, member, transfer)| {
            match transfer.test() {
                Ok(false) => return true,
                Ok(true) => {
                    if let Some(notice) = transfer.words().and_then(Notice::decode) {
                        self.handle_notice(*group, *member, notice, now);
                    }
                }
                Err(failure) => self.library_failed_in_notices(*group, failure),
            }
            false
        });
        self.notices.arriving = arriving;
    }

    fn receive_notices(&mut self, group: usize) -> Result<(), Failure> {
        let comm = self.groups[group].comm;
        while let Some((member, words)) = library::probe(comm, tags::NOTICE)? {
            let transfer = Transfer::receive_words(comm, member, tags::NOTICE, words)?;
            self.notices.arriving.push((group, member, transfer));
        }
        self.groups[group].notices_polled = Some(Instant::now());
        Ok(())
    }

    fn handle_notice(&mut self, group: usize, member: usize, notice: Notice, now: Instant) {
        self.notices.last_heard.insert((group, member), now);
        match notice {
            Notice::AliveQuery => self.notify(group, &[member], &Notice::Alive),
            Notice::Alive => {}
            Notice::Leaving => {
                self.groups[group].left.insert(member);
            }
            // Its sender has notified all members.
            Notice::Failed(error) => {
                self.groups[group].failure.get_or_insert(error);
            }
        }
    }

    /// Asks all members of a group to answer that they are alive.
    pub(in crate::mpi) fn query_liveness(&mut self, group: usize) {
        let others: Vec<usize> = self.groups[group].others().collect();
        self.notify(group, &others, &Notice::AliveQuery);
    }

    /// Those of some members of a group that have sent no notice since then; all of them, if all have. A member that is
    /// alive but late may only be waiting for one that is not.
    pub(in crate::mpi) fn unresponsive_since(
        &self,
        group: usize,
        then: Instant,
        suspects: Vec<usize>,
    ) -> Vec<usize> {
        let gone = &self.groups[group].left;
        let heard = |member: &usize| {
            gone.contains(member)
                || self.notices.last_heard.get(&(group, *member)).is_some_and(|at| *at >= then)
        };
        let (alive, silent): (Vec<usize>, Vec<usize>) = suspects.into_iter().partition(heard);
        if silent.is_empty() { alive } else { silent }
    }

    /// Marks a group as failed, unless it is, and notifies its members; gives the first failure.
    pub(in crate::mpi) fn fail_group(&mut self, group: usize, error: Error) -> Error {
        if let Some(failure) = &self.groups[group].failure {
            return failure.clone();
        }
        self.groups[group].failure = Some(error.clone());
        let others: Vec<usize> = self.groups[group].others().collect();
        self.notify(group, &others, &Notice::Failed(error.clone()));
        error
    }

    /// Notifies the members of a group that this rank leaves it.
    pub(in crate::mpi) fn notify_leaving(&mut self, group: usize) {
        let others: Vec<usize> = self.groups[group].others().collect();
        self.notify(group, &others, &Notice::Leaving);
    }

    fn notify(&mut self, group: usize, members: &[usize], notice: &Notice) {
        let state = &self.groups[group];
        // Nothing is sent after `Leaving`, and members that have left receive nothing.
        if state.has_left && *notice != Notice::Leaving {
            return;
        }
        let members: Vec<usize> = members
            .iter()
            .copied()
            .filter(|member| *notice == Notice::Leaving || !state.left.contains(member))
            .collect();
        let message = Arc::new(notice.encode(self.groups[group].members.len()));
        let call = Call { operation: Operation::Barrier, element: None };
        for member in members {
            // A member that cannot be notified runs into its own time-out.
            let _ = self.post(group, &call, member, tags::NOTICE, &message);
        }
    }

    pub(in crate::mpi) fn library_failed_in_notices(&mut self, group: usize, failure: Failure) {
        let call = Call { operation: Operation::Barrier, element: None };
        let rank = self.groups[group].world_rank();
        self.fail_group(group, failure.error(rank, &call));
    }
}

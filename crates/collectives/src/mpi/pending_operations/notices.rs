//! Sending, receiving and handling of notices: messages between the members of a group about
//! liveness, departures and failures. Groups are named by their identifiers on this rank, members
//! by their numbers in the group.
//!
//! Notices identify the ranks that are missing when an operation stops half-way, and make a failure
//! the same on all ranks, including late ones: these read the notices before they match old headers
//! of other members with their own call. Otherwise notices are polled only when an operation has
//! been pending for a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::PendingOperations;
use crate::mpi::library::{self, LibraryFailure};
use crate::mpi::notice::Notice;
use crate::mpi::tags;
use crate::mpi::transfer::Transfer;
use crate::{Call, Error, Operation};

/// Time for which an operation must have been pending before its rank polls for notices.
pub(super) const NOTICE_DELAY: Duration = Duration::from_millis(10);

/// Minimum interval between two polls for notices.
pub(in crate::mpi) const NOTICE_INTERVAL: Duration = Duration::from_millis(2);

/// Maximum number of groups whose notices one poll receives. A program may have thousands.
pub(super) const MAX_GROUPS_PER_POLL: usize = 32;

/// Notices that are being received, of all groups.
#[derive(Debug, Default)]
pub(super) struct Notices {
    polled: Option<Instant>,
    /// First group of the next poll.
    next_group: usize,
    /// Notices that are being received: the group, the member and the message.
    incoming: Vec<(usize, usize, Transfer)>,
    /// Time of the last notice of each member of a group.
    last_heard: HashMap<(usize, usize), Instant>,
}

impl Notices {
    /// Removes the record of the last notices of a group's members, when the group is freed.
    pub(super) fn remove_group(&mut self, group: usize) {
        self.last_heard.retain(|(other, _), _| *other != group);
    }
}

impl PendingOperations {
    /// Receives the notices of the next [`MAX_GROUPS_PER_POLL`] groups without waiting, unless this
    /// was done within [`NOTICE_INTERVAL`].
    pub(in crate::mpi) fn poll_notices(&mut self, now: Instant) {
        let recent = |polled: Instant| now.saturating_duration_since(polled) < NOTICE_INTERVAL;
        if self.notices.polled.is_some_and(recent) {
            return;
        }
        self.notices.polled = Some(now);
        let mut batch = self.groups.ids_from(self.notices.next_group, MAX_GROUPS_PER_POLL);
        if batch.len() < MAX_GROUPS_PER_POLL {
            let rest = (MAX_GROUPS_PER_POLL - batch.len()).min(self.groups.len() - batch.len());
            batch.extend(self.groups.ids_from(0, rest));
        }
        self.notices.next_group = batch.last().map_or(0, |last| last + 1);
        for group in batch {
            if let Err(failure) = self.receive_notices(group) {
                self.fail_group_for_library(group, failure);
            }
        }
        self.handle_arrived_notices(now);
        self.free_released_groups();
    }

    /// Whether the notices of a group were received within [`NOTICE_INTERVAL`] and none is still
    /// being received.
    pub(in crate::mpi) fn has_polled_notices_of(&self, group: usize, now: Instant) -> bool {
        let recent = |polled: Instant| now.saturating_duration_since(polled) < NOTICE_INTERVAL;
        self.groups[group].notices_polled.is_some_and(recent) && !self.is_receiving_notices_of(group)
    }

    fn is_receiving_notices_of(&self, group: usize) -> bool {
        self.notices.incoming.iter().any(|(other, ..)| *other == group)
    }

    /// Receives the notices of one group without waiting. Returns whether none is still being
    /// received.
    pub(in crate::mpi) fn poll_notices_of(&mut self, group: usize) -> bool {
        if let Err(failure) = self.receive_notices(group) {
            self.fail_group_for_library(group, failure);
        }
        if !self.notices.incoming.is_empty() {
            self.handle_arrived_notices(Instant::now());
        }
        !self.is_receiving_notices_of(group)
    }

    fn handle_arrived_notices(&mut self, now: Instant) {
        let mut incoming = std::mem::take(&mut self.notices.incoming);
        incoming.retain_mut(|(group, member, transfer)| {
            match transfer.test() {
                Ok(false) => return true,
                Ok(true) => {
                    if let Some(notice) = transfer.words().and_then(Notice::decode) {
                        self.handle_notice(*group, *member, notice, now);
                    }
                }
                Err(failure) => self.fail_group_for_library(*group, failure),
            }
            false
        });
        self.notices.incoming = incoming;
    }

    fn receive_notices(&mut self, group: usize) -> Result<(), LibraryFailure> {
        let comm = self.groups[group].comm;
        while let Some((member, words)) = library::probe(comm, tags::NOTICE)? {
            let transfer = Transfer::receive_words(comm, member, tags::NOTICE, words)?;
            self.notices.incoming.push((group, member, transfer));
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
            // The sender has notified all members.
            Notice::Failed(error) => {
                self.groups[group].failure.get_or_insert(error);
            }
        }
    }

    /// Asks all other members of a group to answer that they are alive.
    pub(in crate::mpi) fn query_liveness(&mut self, group: usize) {
        let others: Vec<usize> = self.groups[group].others().collect();
        self.notify(group, &others, &Notice::AliveQuery);
    }

    /// Returns those of the members `suspects` that have sent no notice since `then` and have not
    /// left the group. If there are none, returns all suspects, because a live but late member may
    /// only be waiting for a missing one. Members are numbered in the group.
    pub(in crate::mpi) fn unresponsive_since(
        &self,
        group: usize,
        then: Instant,
        suspects: Vec<usize>,
    ) -> Vec<usize> {
        let left = &self.groups[group].left;
        let heard = |member: &usize| {
            left.contains(member)
                || self.notices.last_heard.get(&(group, *member)).is_some_and(|at| *at >= then)
        };
        let (alive, silent): (Vec<usize>, Vec<usize>) = suspects.into_iter().partition(heard);
        if silent.is_empty() { alive } else { silent }
    }

    /// Marks a group as failed with `error` and notifies its members, unless it has failed before.
    /// Returns the first error of the group.
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
            // A member that cannot be notified times out.
            let _ = self.post(group, &call, member, tags::NOTICE, &message);
        }
    }

    /// Fails a group because of a failed call of the library outside of any operation.
    pub(in crate::mpi) fn fail_group_for_library(&mut self, group: usize, failure: LibraryFailure) {
        let call = Call { operation: Operation::Barrier, element: None };
        let rank = self.groups[group].world_rank();
        self.fail_group(group, failure.error(rank, &call));
    }
}

//! All operations of a process that are pending in MPI.
//!
//! Every poll of any request makes progress on all of them: otherwise ranks that wait for the requests of overlapping
//! groups in different orders would deadlock.

mod arrivals;
mod notices;
mod release;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::along;
use super::buffers::Buffers;
use super::group::{GroupState, Groups};
use super::group_plan::GroupPlans;
use super::header::Header;
use super::library::{Failure, World};
use super::operation::{Channel, Checked, GRACE, PendingOperation, Progress, Receipt};
use super::spare::Spare;
use super::tags::{self, Kind};
use super::transfer::Transfer;
use super::work::Work;
use crate::{Call, Error, Operation, Result};
pub(super) use notices::NOTICES_EVERY;
use notices::{NOTICES_AFTER, Notices};

/// The number of the group of all ranks.
pub(super) const WORLD: usize = 0;

/// How often a rank that has not polled for a while polls for notices: MPI receives a few messages each time.
const POLLS_TO_CATCH_UP: usize = 64;

/// Pending operations and their groups.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) timeout: Duration,
    checks: bool,
    largest_tag: c_int,
    pub(super) groups: Groups,
    /// Groups without handles.
    released: Vec<usize>,
    pub(super) plans: GroupPlans,
    notices: Notices,
    /// In the order in which they were started.
    pending: Vec<(u64, PendingOperation)>,
    finished: FxHashMap<u64, Result<Buffers>>,
    next_id: u64,
    unattended: Vec<Unattended>,
    spare: Spare,
    /// When this rank last polled.
    worked: Instant,
}

/// A message that is being sent, or received for nobody.
#[derive(Debug)]
struct Unattended {
    group: usize,
    call: Call,
    transfer: Transfer,
}

impl Engine {
    pub(super) fn new(world: &World, timeout: Duration, checks: bool) -> Self {
        let mut groups = Groups::default();
        groups.add(GroupState::new(world.comm, (0..world.size).collect(), world.rank));
        Self {
            timeout,
            checks,
            largest_tag: world.largest_tag,
            groups,
            released: Vec::new(),
            plans: GroupPlans::default(),
            notices: Notices::default(),
            pending: Vec::new(),
            finished: FxHashMap::default(),
            next_id: 0,
            unattended: Vec::new(),
            spare: Spare::default(),
            worked: Instant::now(),
        }
    }

    /// Starts an operation and gives the number of its request.
    pub(super) fn start(&mut self, group: usize, call: Call, buffers: Buffers) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let started = self.begin(group, call, buffers)?;
        self.pending.push((id, started));
        Ok(id)
    }

    fn begin(&mut self, group: usize, call: Call, buffers: Buffers) -> Result<PendingOperation> {
        let now = Instant::now();
        self.catch_up_on_notices(group, now);
        let state = &mut self.groups[group];
        state.usable()?;
        let size = state.members.len();
        let (channel, data_tag, peers, tags) = match call.operation {
            Operation::Send { to: peer, tag, .. } | Operation::Receive { from: peer, tag, .. } => {
                if peer >= size {
                    return Err(Error::NoSuchRank { rank: peer, size });
                }
                let limit = tags::largest_number(self.largest_tag);
                let numbered = |kind| {
                    tags::tag(kind, u64::from(tag), self.largest_tag).ok_or(Error::NoSuchTag { tag, limit })
                };
                let (sender, receiver) = (numbered(Kind::SenderHeader)?, numbered(Kind::ReceiverHeader)?);
                let (channel, tags) = match call.operation {
                    Operation::Send { to, .. } => (Channel::Outgoing { to, tag }, (sender, receiver)),
                    _ => (Channel::Incoming { from: peer, tag }, (receiver, sender)),
                };
                (channel, numbered(Kind::Data)?, vec![peer], tags)
            }
            _ => (Channel::Collectives, 0, state.others().collect(), (tags::HEADER, tags::HEADER)),
        };
        let sequence = match channel {
            Channel::Collectives => {
                state.next_sequence += 1;
                state.next_sequence - 1
            }
            _ => 0,
        };
        let work = Work::new(&call, buffers, size, data_tag);
        let library_error = |failure: Failure, rank| failure.error(rank, &call);
        let rank = state.world_rank();
        if !self.checks {
            let work = work.map_err(|fault| fault.error(rank, &call, size))?;
            let transfer = Transfer::start_work(state.comm, work)
                .map_err(|failure| self.fail_group(group, library_error(failure, rank)))?;
            return Ok(PendingOperation::unchecked(group, channel, now, call, transfer));
        }
        let header = Header { sequence, call: call.clone(), fault: work.as_ref().err().cloned() };
        let work = work.ok();
        let messages = along::messages(&header, work.as_ref(), size, &mut self.spare);
        // As the others decode it, so that all come to the same result.
        let header = messages.first().and_then(|message| Header::decode(message)).unwrap_or(header);
        let others = self
            .exchange(group, &call, &peers, &messages, tags)
            .map_err(|failure| self.fail_group(group, library_error(failure, rank)))?;
        let own = Checked { place: self.groups[group].rank, header, messages, work };
        Ok(PendingOperation::checking(group, channel, now, own, others))
    }

    /// Sends messages, of which the first begins with a header, to some members and receives the first of theirs; `tags` are
    /// those to send and to receive headers under.
    fn exchange(
        &mut self,
        group: usize,
        call: &Call,
        peers: &[usize],
        messages: &[Arc<Vec<u64>>],
        tags: (c_int, c_int),
    ) -> std::result::Result<Vec<Receipt>, Failure> {
        let GroupState { comm, ref members, .. } = self.groups[group];
        let capacity = along::capacity(members.len());
        let spare = &mut self.spare;
        let receive = |&member: &usize| {
            let transfer = Transfer::receive_into(comm, member, tags.1, spare.take(capacity))?;
            Ok(Receipt { member, transfer })
        };
        let receipts = peers.iter().map(receive).collect::<std::result::Result<_, _>>()?;
        // The header last: a rank that has it need not wait for the rest.
        let rest = messages.iter().skip(1).map(|message| (tags::ALONG, message));
        for (tag, message) in rest.chain(messages.first().map(|message| (tags.0, message))) {
            peers.iter().try_for_each(|&member| self.post(group, call, member, tag, message))?;
        }
        Ok(receipts)
    }

    /// Sends a message to a member.
    pub(super) fn post(
        &mut self,
        group: usize,
        call: &Call,
        member: usize,
        tag: c_int,
        words: &Arc<Vec<u64>>,
    ) -> std::result::Result<(), Failure> {
        let mut transfer = Transfer::send_words(self.groups[group].comm, member, tag, Arc::clone(words))?;
        if !transfer.test()? {
            self.unattended.push(Unattended { group, call: call.clone(), transfer });
        }
        Ok(())
    }

    /// Receives the notices that members of a group have sent while this rank did not poll: the group may have failed, and
    /// headers that were sent before would match this rank's next operation.
    pub(super) fn catch_up_on_notices(&mut self, group: usize, now: Instant) {
        if now.saturating_duration_since(self.worked) >= NOTICES_AFTER {
            for _ in 0..POLLS_TO_CATCH_UP {
                self.poll_notices_of(group);
            }
        }
    }

    /// Makes progress on every operation of the process, without waiting.
    pub(super) fn progress(&mut self) {
        let now = Instant::now();
        self.worked = now;
        self.finish_unattended();
        let oldest = self.pending.first().map(|(_, operation)| operation.started);
        if oldest.is_some_and(|started| now.saturating_duration_since(started) >= NOTICES_AFTER) {
            self.poll_notices(now);
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut held: Vec<(usize, Channel)> = Vec::new();
        let mut later = pending.len();
        pending.retain_mut(|(id, operation)| {
            later -= 1;
            let channel = (operation.group, operation.channel);
            let outcome = if held.contains(&channel) {
                self.groups[operation.group].usable().map(|()| Progress::Waiting)
            } else {
                self.advance(operation, now)
            };
            let result = match outcome {
                Ok(Progress::Waiting) => {
                    if later > 0 && operation.holds_its_channel() {
                        held.push(channel);
                    }
                    return true;
                }
                Ok(Progress::Complete(buffers)) => {
                    operation.spare(&mut self.spare);
                    Ok(buffers)
                }
                Err(error) => {
                    let unread = operation.take_unread().into_iter();
                    let (group, call) = (operation.group, &operation.call);
                    let unattended = |transfer| Unattended { group, call: call.clone(), transfer };
                    self.unattended.extend(unread.map(unattended));
                    Err(error)
                }
            };
            if !operation.abandoned {
                self.finished.insert(*id, result);
            }
            false
        });
        self.pending = pending;
    }

    fn advance(&mut self, operation: &mut PendingOperation, now: Instant) -> Result<Progress> {
        match self.step(operation, now) {
            Err(error @ Error::Library { .. }) => Err(self.fail_group(operation.group, error)),
            Ok(Progress::Waiting) if now.saturating_duration_since(operation.started) >= self.timeout => {
                self.overdue(operation, now)
            }
            other => other,
        }
    }

    fn step(&mut self, operation: &mut PendingOperation, now: Instant) -> Result<Progress> {
        let group = operation.group;
        self.groups[group].usable()?;
        if operation.holds_its_channel() {
            if !operation.has_all_headers(&self.groups[group])? {
                return Ok(Progress::Waiting);
            }
            // Headers remain when their senders have timed out and this rank is late: notices tell.
            if !self.has_polled_notices_of(group, now) && !self.poll_notices_of(group) {
                return Ok(Progress::Waiting);
            }
            self.groups[group].usable()?;
        }
        operation.advance(&self.groups[group])
    }

    /// Fails an operation that has been pending too long, and its group with it.
    fn overdue(&mut self, operation: &mut PendingOperation, now: Instant) -> Result<Progress> {
        let Some(since) = operation.overdue_since else {
            operation.overdue_since = Some(now);
            self.query_liveness(operation.group);
            return Ok(Progress::Waiting);
        };
        if now.saturating_duration_since(since) < GRACE {
            return Ok(Progress::Waiting);
        }
        let group = &self.groups[operation.group];
        let suspects = operation.missing().unwrap_or_else(|| group.others().collect());
        let missing = self.unresponsive_since(operation.group, since, suspects);
        let error = Error::TimedOut {
            missing: missing.into_iter().map(|member| group.members[member]).collect(),
            call: operation.call.clone(),
            waited: now.saturating_duration_since(operation.started),
        };
        Err(self.fail_group(operation.group, error))
    }

    fn finish_unattended(&mut self) {
        let mut unattended = std::mem::take(&mut self.unattended);
        unattended.retain_mut(|message| match message.transfer.test() {
            Ok(complete) => !complete,
            Err(failure) => {
                let rank = self.groups[message.group].world_rank();
                self.fail_group(message.group, failure.error(rank, &message.call));
                false
            }
        });
        self.unattended.append(&mut unattended);
    }

    /// Makes progress, and gives whether an operation is complete; fails as the operation did.
    pub(super) fn poll(&mut self, id: u64) -> Result<bool> {
        if !self.finished.contains_key(&id) {
            self.progress();
        }
        match self.finished.get(&id) {
            None => Ok(false),
            Some(Ok(_)) => Ok(true),
            Some(Err(error)) => Err(error.clone()),
        }
    }

    /// The buffers of an operation that is complete, once.
    pub(super) fn collect(&mut self, id: u64) -> Option<Buffers> {
        self.finished.remove(&id)?.ok()
    }

    /// The request of this operation was dropped: its buffers are dropped when it is complete.
    pub(super) fn abandon(&mut self, id: u64) {
        self.finished.remove(&id);
        if let Some((_, operation)) = self.pending.iter_mut().find(|(other, _)| *other == id) {
            operation.abandoned = true;
        }
    }

    /// The failure of a group, if one has failed: MPI may then never complete its operations.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.groups.iter().find_map(|group| group.failure.as_ref())
    }

    /// Whether something of a group is pending.
    pub(super) fn is_busy_in(&self, group: usize) -> bool {
        self.pending.iter().any(|(_, operation)| operation.group == group)
            || self.unattended.iter().any(|message| message.group == group)
    }

    /// Whether MPI holds memory of this process.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.unattended.is_empty()
    }
}

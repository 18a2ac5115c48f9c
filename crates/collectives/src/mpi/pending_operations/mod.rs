//! All operations of a process that are pending in MPI. Groups are named by their identifiers on
//! this rank, members by their numbers in the group. A *header* is a message that describes a
//! rank's call, a *notice* a message about the liveness, departure or failure of a member.
//!
//! A poll of any request makes progress on all operations. Otherwise ranks that wait for the
//! requests of overlapping groups in different orders would deadlock.

mod arrivals;
mod notices;
mod release;

use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::buffers::Buffers;
use super::eager_all_reduce;
use super::group::{Groups, MpiGroup};
use super::group_description::SubgroupRegistry;
use super::header::Header;
use super::library::{LibraryFailure, WorldInfo};
use super::message_pool::MessagePool;
use super::operation::{Channel, GRACE_PERIOD, IncomingMessage, OwnCall, PendingOperation, Progress};
use super::prepared_call::PreparedCall;
use super::tags::{self, TagKind};
use super::transfer::Transfer;
use crate::{Call, Error, Operation, Result};
pub(super) use notices::NOTICE_INTERVAL;
use notices::{NOTICE_DELAY, Notices};

/// Identifier of the group of all ranks.
pub(super) const WORLD: usize = 0;

/// Number of polls for notices of a rank that has not polled for a while. MPI receives a few
/// messages in each.
const CATCH_UP_POLLS: usize = 64;

/// Pending operations of a process, its groups, and the messages that it is sending or receiving.
#[derive(Debug)]
pub(super) struct PendingOperations {
    /// Maximum time for which an operation is pending before it fails.
    pub(super) timeout: Duration,
    checks: bool,
    max_tag: c_int,
    /// Groups of this rank that have not been freed.
    pub(super) groups: Groups,
    /// Groups without handles.
    released: Vec<usize>,
    /// Subgroups that are being created, and subgroups that were created from a list of ranks.
    pub(super) subgroups: SubgroupRegistry,
    notices: Notices,
    /// Pending operations in the order of their start.
    pending: Vec<(u64, PendingOperation)>,
    finished: FxHashMap<u64, Result<Buffers>>,
    next_id: u64,
    detached: Vec<DetachedMessage>,
    pool: MessagePool,
    /// Time of this rank's last poll.
    last_poll: Instant,
}

/// A message that is being sent, or received without a receiver.
#[derive(Debug)]
struct DetachedMessage {
    group: usize,
    call: Call,
    transfer: Transfer,
}

impl PendingOperations {
    /// Creates the state of a process without pending operations, with the group of all ranks.
    /// `checks` is whether ranks compare their calls before data moves.
    pub(super) fn new(world: &WorldInfo, timeout: Duration, checks: bool) -> Self {
        let mut groups = Groups::default();
        groups.add(MpiGroup::new(world.comm, (0..world.size).collect(), world.rank));
        Self {
            timeout,
            checks,
            max_tag: world.max_tag,
            groups,
            released: Vec::new(),
            subgroups: SubgroupRegistry::default(),
            notices: Notices::default(),
            pending: Vec::new(),
            finished: FxHashMap::default(),
            next_id: 0,
            detached: Vec::new(),
            pool: MessagePool::default(),
            last_poll: Instant::now(),
        }
    }

    /// Starts an operation of a group and returns its identifier, which is unique in the process.
    ///
    /// # Errors
    /// - `Error::NoSuchRank` and `Error::NoSuchTag` for a message with such an argument, because no
    ///   other rank could receive the call.
    /// - Without comparison of calls, the error of any other invalid argument.
    /// - `Error::Library` if MPI cannot start the operation.
    /// - The error of the group if it has failed.
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
                let limit = tags::max_number(self.max_tag);
                let numbered = |kind| {
                    tags::tag(kind, u64::from(tag), self.max_tag).ok_or(Error::NoSuchTag { tag, limit })
                };
                let (sender, receiver) =
                    (numbered(TagKind::SenderHeader)?, numbered(TagKind::ReceiverHeader)?);
                let (channel, tags) = match call.operation {
                    Operation::Send { to, .. } => (Channel::Outgoing { to, tag }, (sender, receiver)),
                    _ => (Channel::Incoming { from: peer, tag }, (receiver, sender)),
                };
                (channel, numbered(TagKind::Data)?, vec![peer], tags)
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
        let prepared = PreparedCall::new(&call, buffers, size, data_tag);
        let library_error = |failure: LibraryFailure, rank| failure.error(rank, &call);
        let rank = state.world_rank();
        if !self.checks {
            let prepared = prepared.map_err(|fault| fault.error(rank, &call, size))?;
            let transfer = Transfer::start_call(state.comm, prepared)
                .map_err(|failure| self.fail_group(group, library_error(failure, rank)))?;
            return Ok(PendingOperation::unchecked(group, channel, now, call, transfer));
        }
        let header = Header { sequence, call: call.clone(), fault: prepared.as_ref().err().cloned() };
        let prepared = prepared.ok();
        let messages = eager_all_reduce::messages(&header, prepared.as_ref(), size, &mut self.pool);
        // As decoded by the other members, so that all get the same result.
        let header = messages.first().and_then(|message| Header::decode(message)).unwrap_or(header);
        let others = self
            .exchange(group, &call, &peers, &messages, tags)
            .map_err(|failure| self.fail_group(group, library_error(failure, rank)))?;
        let own = OwnCall { place: self.groups[group].rank, header, messages, call: prepared };
        Ok(PendingOperation::checking(group, channel, now, own, others))
    }

    /// Sends messages, the first of which begins with a header, to some members and starts to
    /// receive the first message of each. `tags` are the tags for sending and receiving headers.
    fn exchange(
        &mut self,
        group: usize,
        call: &Call,
        peers: &[usize],
        messages: &[Arc<Vec<u64>>],
        tags: (c_int, c_int),
    ) -> std::result::Result<Vec<IncomingMessage>, LibraryFailure> {
        let MpiGroup { comm, ref members, .. } = self.groups[group];
        let capacity = eager_all_reduce::capacity(members.len());
        let pool = &mut self.pool;
        let receive = |&member: &usize| {
            let transfer = Transfer::receive_into(comm, member, tags.1, pool.acquire(capacity))?;
            Ok(IncomingMessage { member, transfer })
        };
        let receipts = peers.iter().map(receive).collect::<std::result::Result<_, _>>()?;
        // The header is sent last: a rank that has received it need not wait for the rest.
        let rest = messages.iter().skip(1).map(|message| (tags::EAGER_DATA, message));
        for (tag, message) in rest.chain(messages.first().map(|message| (tags.0, message))) {
            peers.iter().try_for_each(|&member| self.post(group, call, member, tag, message))?;
        }
        Ok(receipts)
    }

    /// Starts to send `words` with MPI's tag `tag` to a member, and tracks the message until it is
    /// sent. `call` is the call for which it is sent, for error messages.
    pub(super) fn post(
        &mut self,
        group: usize,
        call: &Call,
        member: usize,
        tag: c_int,
        words: &Arc<Vec<u64>>,
    ) -> std::result::Result<(), LibraryFailure> {
        let mut transfer = Transfer::send_words(self.groups[group].comm, member, tag, Arc::clone(words))?;
        if !transfer.test()? {
            self.detached.push(DetachedMessage { group, call: call.clone(), transfer });
        }
        Ok(())
    }

    /// Receives the notices that members of a group have sent while this rank did not poll. The
    /// group may have failed, and headers sent before the failure would match this rank's next
    /// operation. `now` is the current time.
    pub(super) fn catch_up_on_notices(&mut self, group: usize, now: Instant) {
        if now.saturating_duration_since(self.last_poll) >= NOTICE_DELAY {
            for _ in 0..CATCH_UP_POLLS {
                self.poll_notices_of(group);
            }
        }
    }

    /// Makes progress on every operation of the process, without waiting.
    pub(super) fn progress(&mut self) {
        let now = Instant::now();
        self.last_poll = now;
        self.advance_detached();
        let oldest = self.pending.first().map(|(_, operation)| operation.started);
        if oldest.is_some_and(|started| now.saturating_duration_since(started) >= NOTICE_DELAY) {
            self.poll_notices(now);
        }
        let mut pending = std::mem::take(&mut self.pending);
        let mut blocked: Vec<(usize, Channel)> = Vec::new();
        let mut later = pending.len();
        pending.retain_mut(|(id, operation)| {
            later -= 1;
            let channel = (operation.group, operation.channel);
            let outcome = if blocked.contains(&channel) {
                self.groups[operation.group].usable().map(|()| Progress::Waiting)
            } else {
                self.advance(operation, now)
            };
            let result = match outcome {
                Ok(Progress::Waiting) => {
                    if later > 0 && operation.blocks_channel() {
                        blocked.push(channel);
                    }
                    return true;
                }
                Ok(Progress::Complete(buffers)) => {
                    operation.recycle_messages(&mut self.pool);
                    Ok(buffers)
                }
                Err(error) => {
                    let unread = operation.take_unread().into_iter();
                    let (group, call) = (operation.group, &operation.call);
                    let detached = |transfer| DetachedMessage { group, call: call.clone(), transfer };
                    self.detached.extend(unread.map(detached));
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
        if operation.blocks_channel() {
            if !operation.has_all_headers(&self.groups[group])? {
                return Ok(Progress::Waiting);
            }
            // If this rank is late, headers remain from senders that have timed out. Their notices
            // tell.
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
        if now.saturating_duration_since(since) < GRACE_PERIOD {
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

    fn advance_detached(&mut self) {
        let mut detached = std::mem::take(&mut self.detached);
        detached.retain_mut(|message| match message.transfer.test() {
            Ok(complete) => !complete,
            Err(failure) => {
                let rank = self.groups[message.group].world_rank();
                self.fail_group(message.group, failure.error(rank, &message.call));
                false
            }
        });
        self.detached.append(&mut detached);
    }

    /// Makes progress on all operations, and returns whether operation `id` is complete, or its
    /// error.
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

    /// Takes the buffers of operation `id`. `None` if it is not complete or has failed.
    pub(super) fn collect(&mut self, id: u64) -> Option<Buffers> {
        self.finished.remove(&id)?.ok()
    }

    /// Records that the request of operation `id` was dropped. Its buffers are dropped when it is
    /// complete.
    pub(super) fn abandon(&mut self, id: u64) {
        self.finished.remove(&id);
        if let Some((_, operation)) = self.pending.iter_mut().find(|(other, _)| *other == id) {
            operation.abandoned = true;
        }
    }

    /// Returns the error of any group that has failed, or `None`. MPI may never complete the
    /// operations of such a group.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.groups.iter().find_map(|group| group.failure.as_ref())
    }

    /// Whether an operation or message of a group is pending.
    pub(super) fn is_busy_in(&self, group: usize) -> bool {
        self.pending.iter().any(|(_, operation)| operation.group == group)
            || self.detached.iter().any(|message| message.group == group)
    }

    /// Whether no operation or message of any group is pending, so that MPI uses no memory of this
    /// process.
    pub(super) fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.detached.is_empty()
    }
}

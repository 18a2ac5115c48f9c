//! All that a process has under way in MPI.
//!
//! Every poll of any request works on all of it: ranks that wait for the requests of overlapping groups in different
//! orders would else wait for each other.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::formation::Formations;
use super::group::{GroupState, Groups};
use super::header::Header;
use super::library::{Failure, World};
use super::news::{LISTEN_AFTER, News};
use super::operation::{GRACE, Progress, Receipt, UnderWay};
use super::tags::{self, Kind};
use super::transfer::{Buffers, Transfer};
use super::work::Work;
use crate::{Call, Error, Operation, Result};

/// The place of the whole world among the groups.
pub(super) const EVERYONE: usize = 0;

/// How often a rank that was busy elsewhere looks for news: MPI takes in a few messages each time.
const LOOKS_TO_CATCH_UP: usize = 64;

/// The operations whose data has to start in the order in which they were started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Collectives,
    /// Messages to or from a member, under one tag.
    Outgoing {
        to: usize,
        tag: u32,
    },
    Incoming {
        from: usize,
        tag: u32,
    },
}

/// Everything under way, and the groups that it is under way in.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) timeout: Duration,
    checks: bool,
    pub(super) largest_tag: c_int,
    pub(super) groups: Groups,
    /// Those without handles.
    pub(super) leaving: Vec<usize>,
    pub(super) formations: Formations,
    pub(super) news: News,
    /// In the order in which they were started.
    pub(super) under_way: Vec<(u64, UnderWay)>,
    finished: HashMap<u64, Result<Buffers>>,
    next_id: u64,
    outbox: Vec<Outgoing>,
    /// When this rank last let MPI work.
    worked: Instant,
}

/// Words that are being sent.
#[derive(Debug)]
struct Outgoing {
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
            leaving: Vec::new(),
            formations: Formations::default(),
            news: News::default(),
            under_way: Vec::new(),
            finished: HashMap::new(),
            next_id: 0,
            outbox: Vec::new(),
            worked: Instant::now(),
        }
    }

    /// Starts an operation and gives the number by which to ask for it.
    pub(super) fn start(&mut self, group: usize, call: Call, buffers: Buffers) -> Result<u64> {
        let id = self.next_id;
        self.next_id += 1;
        let started = self.begin(group, call, buffers)?;
        self.under_way.push((id, started));
        Ok(id)
    }

    fn begin(&mut self, group: usize, call: Call, buffers: Buffers) -> Result<UnderWay> {
        self.catch_up(group);
        let state = &mut self.groups[group];
        state.usable()?;
        let size = state.members.len();
        let (lane, data_tag, peers, tags) = match call.operation {
            Operation::Send { to: peer, tag, .. } | Operation::Receive { from: peer, tag, .. } => {
                if peer >= size {
                    return Err(Error::NoSuchRank { rank: peer, size });
                }
                let limit = tags::largest_number(self.largest_tag);
                let numbered = |kind| {
                    tags::tag(kind, u64::from(tag), self.largest_tag).ok_or(Error::NoSuchTag { tag, limit })
                };
                let (sender, receiver) = (numbered(Kind::SenderHeader)?, numbered(Kind::ReceiverHeader)?);
                let (lane, tags) = match call.operation {
                    Operation::Send { to, .. } => (Lane::Outgoing { to, tag }, (sender, receiver)),
                    _ => (Lane::Incoming { from: peer, tag }, (receiver, sender)),
                };
                (lane, numbered(Kind::Data)?, vec![peer], tags)
            }
            _ => (Lane::Collectives, 0, state.others().collect(), (tags::HEADER, tags::HEADER)),
        };
        let sequence = match lane {
            Lane::Collectives => {
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
            return Ok(UnderWay::unchecked(group, lane, call, transfer));
        }
        let header = Header { sequence, call: call.clone(), fault: work.as_ref().err().cloned() };
        let words: Arc<[u64]> = header.encode(size).into();
        let others = self
            .exchange(group, &call, &peers, &words, tags)
            .map_err(|failure| self.fail_group(group, library_error(failure, rank)))?;
        // As the others read it, so that all draw one conclusion.
        let own = Header::decode(&words).unwrap_or(header);
        Ok(UnderWay::checking(group, lane, (self.groups[group].rank, own), others, work.ok()))
    }

    /// Sends a header to some members and expects theirs; `tags` are those to send and to receive under.
    fn exchange(
        &mut self,
        group: usize,
        call: &Call,
        peers: &[usize],
        words: &Arc<[u64]>,
        tags: (c_int, c_int),
    ) -> std::result::Result<Vec<Receipt>, Failure> {
        let GroupState { comm, ref members, .. } = self.groups[group];
        let capacity = Header::capacity(members.len());
        let receive = |&member: &usize| {
            let transfer = Transfer::receive_words(comm, member, tags.1, capacity)?;
            Ok(Receipt { member, transfer })
        };
        let receipts = peers.iter().map(receive).collect::<std::result::Result<_, _>>()?;
        peers.iter().try_for_each(|&member| self.post(group, call, member, tags.0, words))?;
        Ok(receipts)
    }

    /// Sends words to a member.
    pub(super) fn post(
        &mut self,
        group: usize,
        call: &Call,
        member: usize,
        tag: c_int,
        words: &Arc<[u64]>,
    ) -> std::result::Result<(), Failure> {
        let mut transfer = Transfer::send_words(self.groups[group].comm, member, tag, Arc::clone(words))?;
        if !transfer.test()? {
            self.outbox.push(Outgoing { group, call: call.clone(), transfer });
        }
        Ok(())
    }

    /// Takes in what the members of a group have told while this rank was busy elsewhere: they may have given up, and what
    /// they sent before would do for this rank's next operation.
    pub(super) fn catch_up(&mut self, group: usize) {
        if self.worked.elapsed() >= LISTEN_AFTER {
            for _ in 0..LOOKS_TO_CATCH_UP {
                self.hear(group);
            }
        }
    }

    /// Does all that can be done without waiting, for every operation of the process.
    pub(super) fn progress(&mut self) {
        let now = Instant::now();
        self.worked = now;
        self.clear_outbox();
        let oldest = self.under_way.first().map(|(_, operation)| operation.started);
        if oldest.is_some_and(|started| now.saturating_duration_since(started) >= LISTEN_AFTER) {
            self.listen(now);
        }
        let mut under_way = std::mem::take(&mut self.under_way);
        let mut held: Vec<(usize, Lane)> = Vec::new();
        under_way.retain_mut(|(id, operation)| {
            let lane = (operation.group, operation.lane);
            let outcome = if held.contains(&lane) {
                self.groups[operation.group].usable().map(|()| Progress::Waiting)
            } else {
                self.advance(operation, now)
            };
            let result = match outcome {
                Ok(Progress::Waiting) => {
                    if operation.holds_its_lane() {
                        held.push(lane);
                    }
                    return true;
                }
                Ok(Progress::Complete(buffers)) => Ok(buffers),
                Err(error) => Err(error),
            };
            if !operation.abandoned {
                self.finished.insert(*id, result);
            }
            false
        });
        self.under_way = under_way;
    }

    fn advance(&mut self, operation: &mut UnderWay, now: Instant) -> Result<Progress> {
        match self.step(operation) {
            Err(error @ Error::Library { .. }) => Err(self.fail_group(operation.group, error)),
            Ok(Progress::Waiting) if now.saturating_duration_since(operation.started) >= self.timeout => {
                self.overdue(operation, now)
            }
            other => other,
        }
    }

    fn step(&mut self, operation: &mut UnderWay) -> Result<Progress> {
        let group = operation.group;
        self.groups[group].usable()?;
        if operation.holds_its_lane() {
            if !operation.headers_are_here(&self.groups[group])? {
                return Ok(Progress::Waiting);
            }
            // They stay when their senders have given up, and this rank is late.
            if !self.hear(group) {
                return Ok(Progress::Waiting);
            }
            self.groups[group].usable()?;
        }
        operation.advance(&self.groups[group])
    }

    /// Lets an operation fail that has waited too long, and its group with it.
    fn overdue(&mut self, operation: &mut UnderWay, now: Instant) -> Result<Progress> {
        let Some(since) = operation.overdue_since else {
            operation.overdue_since = Some(now);
            self.ask_who_is_there(operation.group);
            return Ok(Progress::Waiting);
        };
        if now.saturating_duration_since(since) < GRACE {
            return Ok(Progress::Waiting);
        }
        let group = &self.groups[operation.group];
        let suspects = operation.missing().unwrap_or_else(|| group.others().collect());
        let missing = self.silent_since(operation.group, since, suspects);
        let error = Error::TimedOut {
            missing: missing.into_iter().map(|member| group.members[member]).collect(),
            call: operation.call.clone(),
            waited: now.saturating_duration_since(operation.started),
        };
        Err(self.fail_group(operation.group, error))
    }

    fn clear_outbox(&mut self) {
        let mut outbox = std::mem::take(&mut self.outbox);
        outbox.retain_mut(|outgoing| match outgoing.transfer.test() {
            Ok(sent) => !sent,
            Err(failure) => {
                let rank = self.groups[outgoing.group].world_rank();
                self.fail_group(outgoing.group, failure.error(rank, &outgoing.call));
                false
            }
        });
        self.outbox.append(&mut outbox);
    }

    /// Whether an operation is complete, after a look at everything; fails as the operation did.
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

    /// Nobody will ask for this operation: its buffers go when it is complete.
    pub(super) fn abandon(&mut self, id: u64) {
        self.finished.remove(&id);
        if let Some((_, operation)) = self.under_way.iter_mut().find(|(other, _)| *other == id) {
            operation.abandoned = true;
        }
    }

    /// Why a group has failed, if one has, so that MPI may work on for ever.
    pub(super) fn failure(&self) -> Option<&Error> {
        self.groups.iter().find_map(|group| group.failure.as_ref())
    }

    /// Whether something of a group is under way.
    pub(super) fn is_busy_in(&self, group: usize) -> bool {
        self.under_way.iter().any(|(_, operation)| operation.group == group)
            || self.outbox.iter().any(|outgoing| outgoing.group == group)
    }

    /// Whether MPI holds memory of this process.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.outbox.is_empty()
    }
}

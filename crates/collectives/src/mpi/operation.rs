//! One pending operation: first the headers, then the data.

use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::group::GroupState;
use super::header::{Header, first_error};
use super::library::{Failure, NAME};
use super::transfer::Transfer;
use super::work::Work;
use crate::{Call, Error, Result};

/// How long an operation may still complete after its time-out: a rank that did not poll for long finds its deadline
/// passed although no rank is missing. It is also the time in which the others answer.
pub(super) const GRACE: Duration = Duration::from_millis(200);

/// Operations whose data moves in the order in which they were started, as MPI matches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
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

/// An operation that this rank has started and that is not complete.
#[derive(Debug)]
pub(super) struct PendingOperation {
    pub(super) group: usize,
    pub(super) channel: Channel,
    pub(super) call: Call,
    pub(super) started: Instant,
    /// When it was first found to be overdue.
    pub(super) overdue_since: Option<Instant>,
    /// Its request was dropped.
    pub(super) abandoned: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Not all headers have been received.
    Checking { own: (usize, Header), others: Vec<Receipt>, work: Option<Work> },
    /// The data moves.
    Moving(Transfer),
}

/// Another member's header, received or being received.
#[derive(Debug)]
pub(super) struct Receipt {
    pub(super) member: usize,
    pub(super) transfer: Transfer,
}

/// How far a poll got.
#[derive(Debug)]
pub(super) enum Progress {
    /// Something is missing.
    Waiting,
    /// The operation is complete.
    Complete(Buffers),
}

impl PendingOperation {
    /// An operation whose header is sent, and those of the others expected.
    pub(super) fn checking(
        group: usize,
        channel: Channel,
        own: (usize, Header),
        others: Vec<Receipt>,
        work: Option<Work>,
    ) -> Self {
        let call = own.1.call.clone();
        Self::new(group, channel, call, Phase::Checking { own, others, work })
    }

    /// An operation that begins without a check.
    pub(super) fn unchecked(group: usize, channel: Channel, call: Call, transfer: Transfer) -> Self {
        Self::new(group, channel, call, Phase::Moving(transfer))
    }

    fn new(group: usize, channel: Channel, call: Call, phase: Phase) -> Self {
        Self { group, channel, call, started: Instant::now(), overdue_since: None, abandoned: false, phase }
    }

    /// Whether its data has not begun to move, so that what comes after it in its channel has to wait.
    pub(super) fn holds_its_channel(&self) -> bool {
        matches!(self.phase, Phase::Checking { .. })
    }

    /// Whether all headers of the others have been received.
    pub(super) fn has_all_headers(&mut self, group: &GroupState) -> Result<bool> {
        let Phase::Checking { others, .. } = &mut self.phase else { return Ok(true) };
        for receipt in others {
            if !receipt.transfer.test().map_err(|failure| failure.error(group.world_rank(), &self.call))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Makes progress without waiting, once all headers have been received.
    pub(super) fn advance(&mut self, group: &GroupState) -> Result<Progress> {
        let library_error = |failure: Failure, call: &Call| failure.error(group.world_rank(), call);
        if let Phase::Checking { own, others, work } = &mut self.phase {
            let not_understood = || Failure("a header of another version of this crate".into());
            let mut headers = vec![own.clone()];
            for receipt in others.iter() {
                let header = receipt.transfer.words().and_then(Header::decode);
                let header = header.filter(|header| header.sequence == own.1.sequence);
                let header = header.ok_or_else(|| library_error(not_understood(), &self.call))?;
                headers.push((receipt.member, header));
            }
            headers.sort_by_key(|(member, _)| *member);
            if let Some(error) = first_error(&headers, &group.members) {
                return Err(error);
            }
            // A call without work has a fault, which is the first error.
            let Some(work) = work.take() else { return Ok(Progress::Waiting) };
            // A rank that has all headers knows that all have called the barrier.
            if work.is_barrier() {
                return Ok(Progress::Complete(work.into_buffers()));
            }
            let transfer = Transfer::start_work(group.comm, work)
                .map_err(|failure| library_error(failure, &self.call))?;
            self.phase = Phase::Moving(transfer);
        }
        let Phase::Moving(transfer) = &mut self.phase else { return Ok(Progress::Waiting) };
        if !transfer.test().map_err(|failure| library_error(failure, &self.call))? {
            return Ok(Progress::Waiting);
        }
        Ok(transfer.take_buffers().map_or(Progress::Waiting, Progress::Complete))
    }

    /// The members whose headers have not been received; `None` while the data moves, when single members are not known.
    pub(super) fn missing(&mut self) -> Option<Vec<usize>> {
        match &mut self.phase {
            Phase::Checking { others, .. } => {
                let absent = others.iter_mut().filter_map(|receipt| {
                    (!receipt.transfer.test().unwrap_or(false)).then_some(receipt.member)
                });
                Some(absent.collect())
            }
            Phase::Moving(_) => None,
        }
    }
}

impl Failure {
    /// As this rank's error.
    pub(super) fn error(self, rank: usize, call: &Call) -> Error {
        Error::Library { backend: NAME, rank, call: call.clone(), message: self.0 }
    }
}

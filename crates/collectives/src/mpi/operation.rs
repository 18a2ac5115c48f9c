//! One pending operation: first the headers, then the data.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::along;
use super::buffers::Buffers;
use super::group::GroupState;
use super::header::{FIXED, Header, first_error};
use super::library::{Failure, NAME};
use super::spare::Spare;
use super::tags;
use super::transfer::Transfer;
use super::work::Work;
use crate::{Call, Error, Operation, Result};

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
    Checking { own: Checked, others: Vec<Receipt> },
    /// What the other members have sent along has not all been received: for each of them, in their order, as many messages as
    /// this rank's own, the first with the header. Without buffers, the calls do not agree, and they are only received.
    Gathering { place: usize, own: Vec<Arc<Vec<u64>>>, others: Vec<Receipt>, buffers: Option<Buffers> },
    /// The data moves.
    Moving(Transfer),
}

/// This rank's part of an operation whose headers are compared.
#[derive(Debug)]
pub(super) struct Checked {
    /// Its place in the group.
    pub(super) place: usize,
    pub(super) header: Header,
    /// What it has sent: the header, and perhaps data behind it.
    pub(super) messages: Vec<Arc<Vec<u64>>>,
    /// What it is to do, unless the call has a fault.
    pub(super) work: Option<Work>,
}

/// Another member's message, received or being received.
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
        started: Instant,
        own: Checked,
        others: Vec<Receipt>,
    ) -> Self {
        let call = own.header.call.clone();
        Self::new(group, channel, started, call, Phase::Checking { own, others })
    }

    /// An operation that begins without a check.
    pub(super) fn unchecked(
        group: usize,
        channel: Channel,
        started: Instant,
        call: Call,
        transfer: Transfer,
    ) -> Self {
        Self::new(group, channel, started, call, Phase::Moving(transfer))
    }

    fn new(group: usize, channel: Channel, started: Instant, call: Call, phase: Phase) -> Self {
        Self { group, channel, call, started, overdue_since: None, abandoned: false, phase }
    }

    /// Whether its data has not begun to move, so that what comes after it in its channel has to wait.
    pub(super) fn holds_its_channel(&self) -> bool {
        matches!(self.phase, Phase::Checking { .. })
    }

    /// Whether all headers of the others have been received.
    pub(super) fn has_all_headers(&mut self, group: &GroupState) -> Result<bool> {
        let Phase::Checking { others, .. } = &mut self.phase else { return Ok(true) };
        all_received(others).map_err(|failure| failure.error(group.world_rank(), &self.call))
    }

    /// Makes progress without waiting, once all headers have been received.
    pub(super) fn advance(&mut self, group: &GroupState) -> Result<Progress> {
        let library_error = |failure: Failure, call: &Call| failure.error(group.world_rank(), call);
        if let Phase::Checking { own, others } = &mut self.phase {
            let size = group.members.len();
            let not_understood = || Failure("a header of another version of this crate".into());
            let mut headers = vec![(own.place, own.header.clone())];
            let mut received = Vec::with_capacity(others.len() * own.messages.len());
            for receipt in others.drain(..) {
                let header = receipt.transfer.words().and_then(Header::decode);
                let header = header.filter(|header| header.sequence == own.header.sequence);
                let header = header.ok_or_else(|| library_error(not_understood(), &self.call))?;
                // Also where the calls do not agree: the next operation would receive it otherwise.
                let member = receipt.member;
                let further = receive_further(group, member, &header);
                received.push(receipt);
                received.extend(further.map_err(|failure| library_error(failure, &self.call))?);
                headers.push((member, header));
            }
            headers.sort_by_key(|(member, _)| *member);
            let work = own.work.take();
            let is_along = along::parts(&own.header, size).is_some();
            let (place, own) = (own.place, std::mem::take(&mut own.messages));
            if let Some(error) = first_error(&headers, &group.members) {
                self.phase = Phase::Gathering { place, own, others: received, buffers: None };
                return Err(error);
            }
            // A call without work has a fault, which is the first error.
            let Some(work) = work else { return Ok(Progress::Waiting) };
            // A rank that has all headers knows that all have called the barrier.
            if work.is_barrier() {
                return Ok(Progress::Complete(work.into_buffers()));
            }
            if is_along {
                let buffers = Some(work.into_buffers());
                self.phase = Phase::Gathering { place, own, others: received, buffers };
                return self.gather(group);
            }
            let transfer = Transfer::start_work(group.comm, work)
                .map_err(|failure| library_error(failure, &self.call))?;
            self.phase = Phase::Moving(transfer);
        }
        let Phase::Moving(transfer) = &mut self.phase else { return self.gather(group) };
        if !transfer.test().map_err(|failure| library_error(failure, &self.call))? {
            return Ok(Progress::Waiting);
        }
        Ok(transfer.take_buffers().map_or(Progress::Waiting, Progress::Complete))
    }

    /// Reduces what all members have sent along, once it has been received.
    fn gather(&mut self, group: &GroupState) -> Result<Progress> {
        let Phase::Gathering { place, own, others, buffers } = &mut self.phase else {
            return Ok(Progress::Waiting);
        };
        if !all_received(others).map_err(|failure| failure.error(group.world_rank(), &self.call))? {
            return Ok(Progress::Waiting);
        }
        let Operation::AllReduce { op, .. } = self.call.operation else { return Ok(Progress::Waiting) };
        let Some(mut buffers) = buffers.take() else { return Ok(Progress::Waiting) };
        let header = Header { sequence: 0, call: self.call.clone(), fault: None };
        let parts = along::parts(&header, group.members.len()).into_iter().flatten();
        for (number, (part, message)) in parts.zip(own.iter()).enumerate() {
            let before = if number == 0 { FIXED } else { 0 };
            let others = others.iter().skip(number).step_by(own.len());
            let received = others.filter_map(|receipt| receipt.transfer.words());
            let lower = received.clone().take(*place);
            let inputs = lower.chain([message.as_slice()]).chain(received.skip(*place));
            buffers.reduce_words(part, op, inputs.filter_map(|message| message.get(before..)));
        }
        Ok(Progress::Complete(buffers))
    }

    /// The messages of an operation that has failed, which this rank still has to receive.
    pub(super) fn take_unread(&mut self) -> Vec<Transfer> {
        match &mut self.phase {
            Phase::Gathering { others, .. } => others.drain(..).map(|receipt| receipt.transfer).collect(),
            Phase::Checking { .. } | Phase::Moving(_) => Vec::new(),
        }
    }

    /// Gives what a completed operation's messages were in, to be used again.
    pub(super) fn spare(&mut self, spare: &mut Spare) {
        if let Phase::Gathering { own, others, .. } = &mut self.phase {
            own.drain(..).for_each(|message| spare.keep_sent(message));
            others
                .iter_mut()
                .filter_map(|receipt| receipt.transfer.take_words())
                .for_each(|words| spare.keep(words));
        }
    }

    /// The members whose messages have not been received; `None` while the data moves, when single members are not known.
    pub(super) fn missing(&mut self) -> Option<Vec<usize>> {
        match &mut self.phase {
            Phase::Checking { others, .. } | Phase::Gathering { others, .. } => {
                let absent = others.iter_mut().filter_map(|receipt| {
                    (!receipt.transfer.test().unwrap_or(false)).then_some(receipt.member)
                });
                let mut absent: Vec<usize> = absent.collect();
                absent.dedup();
                Some(absent)
            }
            Phase::Moving(_) => None,
        }
    }
}

/// Begins to receive what a member has sent in addition to the message with this header.
fn receive_further(
    group: &GroupState,
    member: usize,
    header: &Header,
) -> std::result::Result<Vec<Receipt>, Failure> {
    let parts = along::parts(header, group.members.len()).into_iter().flatten().skip(1);
    let receive = |part: Range<usize>| {
        let transfer = Transfer::receive_words(group.comm, member, tags::ALONG, part.len())?;
        Ok(Receipt { member, transfer })
    };
    parts.map(receive).collect()
}

fn all_received(receipts: &mut [Receipt]) -> std::result::Result<bool, Failure> {
    for receipt in receipts {
        if !receipt.transfer.test()? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Failure {
    /// As this rank's error.
    pub(super) fn error(self, rank: usize, call: &Call) -> Error {
        Error::Library { backend: NAME, rank, call: call.clone(), message: self.0 }
    }
}

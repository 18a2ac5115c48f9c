//! State of one pending operation, which first exchanges headers and then its data. A *header* is a
//! message that describes a rank's call. A *fault* is an invalid argument of a call. Small data is
//! sent *eagerly*, together with the header.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::buffers::Buffers;
use super::eager_all_reduce;
use super::group::MpiGroup;
use super::header::{FIXED_WORDS, Header, first_error};
use super::library::{LibraryFailure, NAME};
use super::message_pool::MessagePool;
use super::prepared_call::PreparedCall;
use super::tags;
use super::transfer::Transfer;
use crate::{Call, Error, Operation, Result};

/// Time in which an operation may still complete after its time-out. A rank that has not polled for
/// long finds its deadline passed although no rank is missing. The other members also answer within
/// this time.
pub(super) const GRACE_PERIOD: Duration = Duration::from_millis(200);

/// Sequence of operations of a group whose data moves in the order of their start, because MPI
/// matches them by order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    /// All collectives of the group.
    Collectives,
    /// Messages from this rank to one member with one tag.
    Outgoing {
        /// Number of the receiver in the group.
        to: usize,
        /// Tag given by the caller.
        tag: u32,
    },
    /// Messages from one member to this rank with one tag.
    Incoming {
        /// Number of the sender in the group.
        from: usize,
        /// Tag given by the caller.
        tag: u32,
    },
}

/// An operation that this rank has started and that is not complete.
#[derive(Debug)]
pub(super) struct PendingOperation {
    /// Identifier of the group on this rank.
    pub(super) group: usize,
    /// Sequence to which the operation belongs.
    pub(super) channel: Channel,
    /// Call of this rank.
    pub(super) call: Call,
    /// Time of the call that started the operation.
    pub(super) started: Instant,
    /// Time at which the operation was first found to be pending longer than the time-out. `None`
    /// before.
    pub(super) overdue_since: Option<Instant>,
    /// Whether its request was dropped, so that its result is not stored.
    pub(super) abandoned: bool,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    /// Some headers have not been received.
    Checking { own: OwnCall, others: Vec<IncomingMessage> },
    /// Some eagerly sent data of other members has not been received. Each of them sends as many
    /// messages as this rank, the first with the header. `buffers` is `None` if the calls do not
    /// agree: the messages are then only received.
    Gathering {
        place: usize,
        own: Vec<Arc<Vec<u64>>>,
        others: Vec<IncomingMessage>,
        buffers: Option<Buffers>,
    },
    /// MPI transfers the data.
    Transferring(Transfer),
}

/// This rank's part of an operation whose headers are compared.
#[derive(Debug)]
pub(super) struct OwnCall {
    /// This rank's number in the group.
    pub(super) place: usize,
    /// Header that this rank sent to the other members.
    pub(super) header: Header,
    /// Messages that this rank sends to every other member: the header with the first data, and
    /// further data if any.
    pub(super) messages: Vec<Arc<Vec<u64>>>,
    /// Prepared call of MPI. `None` if this rank's call has a fault.
    pub(super) call: Option<PreparedCall>,
}

/// A message of another member, received or being received.
#[derive(Debug)]
pub(super) struct IncomingMessage {
    /// Number of the sender in the group.
    pub(super) member: usize,
    /// Receive operation of MPI, complete or not.
    pub(super) transfer: Transfer,
}

/// Result of a poll of an operation.
#[derive(Debug)]
pub(super) enum Progress {
    /// The operation is not complete.
    Waiting,
    /// The operation is complete and returns its buffers.
    Complete(Buffers),
}

impl PendingOperation {
    /// Creates an operation whose header has been sent and which waits for the headers of the
    /// `others`. `group` is an identifier on this rank.
    pub(super) fn checking(
        group: usize,
        channel: Channel,
        started: Instant,
        own: OwnCall,
        others: Vec<IncomingMessage>,
    ) -> Self {
        let call = own.header.call.clone();
        Self::new(group, channel, started, call, Phase::Checking { own, others })
    }

    /// Creates an operation whose data is transferred without a comparison of calls. `group` is an
    /// identifier on this rank.
    pub(super) fn unchecked(
        group: usize,
        channel: Channel,
        started: Instant,
        call: Call,
        transfer: Transfer,
    ) -> Self {
        Self::new(group, channel, started, call, Phase::Transferring(transfer))
    }

    fn new(group: usize, channel: Channel, started: Instant, call: Call, phase: Phase) -> Self {
        Self { group, channel, call, started, overdue_since: None, abandoned: false, phase }
    }

    /// Whether the operation's data has not begun to move, so that later operations of its channel
    /// must wait.
    pub(super) fn blocks_channel(&self) -> bool {
        matches!(self.phase, Phase::Checking { .. })
    }

    /// Returns whether the headers of all other members have been received, or an error of the
    /// library.
    pub(super) fn has_all_headers(&mut self, group: &MpiGroup) -> Result<bool> {
        let Phase::Checking { others, .. } = &mut self.phase else { return Ok(true) };
        all_received(others).map_err(|failure| failure.error(group.world_rank(), &self.call))
    }

    /// Makes progress without waiting. The headers of all members must have been received.
    ///
    /// # Errors
    /// The error of the calls if they do not agree or one has a fault, or an error of the library.
    pub(super) fn advance(&mut self, group: &MpiGroup) -> Result<Progress> {
        let library_error = |failure: LibraryFailure, call: &Call| failure.error(group.world_rank(), call);
        if let Phase::Checking { own, others } = &mut self.phase {
            let size = group.members.len();
            let wrong_version = || LibraryFailure("a header of another version of this crate".into());
            let mut headers = vec![(own.place, own.header.clone())];
            let mut received = Vec::with_capacity(others.len() * own.messages.len());
            for receipt in others.drain(..) {
                let header = receipt.transfer.words().and_then(Header::decode);
                let header = header.filter(|header| header.sequence == own.header.sequence);
                let header = header.ok_or_else(|| library_error(wrong_version(), &self.call))?;
                // Also if the calls do not agree: the next operation would receive the data
                // otherwise.
                let member = receipt.member;
                let further = receive_further(group, member, &header);
                received.push(receipt);
                received.extend(further.map_err(|failure| library_error(failure, &self.call))?);
                headers.push((member, header));
            }
            headers.sort_by_key(|(member, _)| *member);
            let prepared = own.call.take();
            let is_eager = eager_all_reduce::message_words(&own.header, size).is_some();
            let (place, own) = (own.place, std::mem::take(&mut own.messages));
            if let Some(error) = first_error(&headers, &group.members) {
                self.phase = Phase::Gathering { place, own, others: received, buffers: None };
                return Err(error);
            }
            // A call without a prepared call has a fault, which is the first error.
            let Some(prepared) = prepared else { return Ok(Progress::Waiting) };
            // A rank that has all headers knows that all members have called the barrier.
            if prepared.is_barrier() {
                return Ok(Progress::Complete(prepared.into_buffers()));
            }
            if is_eager {
                let buffers = Some(prepared.into_buffers());
                self.phase = Phase::Gathering { place, own, others: received, buffers };
                return self.gather(group);
            }
            let transfer = Transfer::start_call(group.comm, prepared)
                .map_err(|failure| library_error(failure, &self.call))?;
            self.phase = Phase::Transferring(transfer);
        }
        let Phase::Transferring(transfer) = &mut self.phase else { return self.gather(group) };
        if !transfer.test().map_err(|failure| library_error(failure, &self.call))? {
            return Ok(Progress::Waiting);
        }
        Ok(transfer.take_buffers().map_or(Progress::Waiting, Progress::Complete))
    }

    /// Reduces the eagerly sent data of all members when it has been received.
    fn gather(&mut self, group: &MpiGroup) -> Result<Progress> {
        let Phase::Gathering { place, own, others, buffers } = &mut self.phase else {
            return Ok(Progress::Waiting);
        };
        if !all_received(others).map_err(|failure| failure.error(group.world_rank(), &self.call))? {
            return Ok(Progress::Waiting);
        }
        let Operation::AllReduce { op, .. } = self.call.operation else { return Ok(Progress::Waiting) };
        let Some(mut buffers) = buffers.take() else { return Ok(Progress::Waiting) };
        let header = Header { sequence: 0, call: self.call.clone(), fault: None };
        let parts = eager_all_reduce::message_words(&header, group.members.len()).into_iter().flatten();
        for (number, (part, message)) in parts.zip(own.iter()).enumerate() {
            let before = if number == 0 { FIXED_WORDS } else { 0 };
            let others = others.iter().skip(number).step_by(own.len());
            let received = others.filter_map(|receipt| receipt.transfer.words());
            let lower = received.clone().take(*place);
            let inputs = lower.chain([message.as_slice()]).chain(received.skip(*place));
            buffers.reduce_words(part, op, inputs.filter_map(|message| message.get(before..)));
        }
        Ok(Progress::Complete(buffers))
    }

    /// Returns the messages of a failed operation that this rank must still receive, so that they
    /// do not match a later operation.
    pub(super) fn take_unread(&mut self) -> Vec<Transfer> {
        match &mut self.phase {
            Phase::Gathering { others, .. } => others.drain(..).map(|receipt| receipt.transfer).collect(),
            Phase::Checking { .. } | Phase::Transferring(_) => Vec::new(),
        }
    }

    /// Returns the message memory of a completed operation to the pool.
    pub(super) fn recycle_messages(&mut self, pool: &mut MessagePool) {
        if let Phase::Gathering { own, others, .. } = &mut self.phase {
            own.drain(..).for_each(|message| pool.recycle_sent(message));
            others
                .iter_mut()
                .filter_map(|receipt| receipt.transfer.take_words())
                .for_each(|words| pool.recycle(words));
        }
    }

    /// Returns the numbers in the group of the members whose messages have not been received.
    /// `None` while MPI transfers the data, which does not tell members apart.
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
            Phase::Transferring(_) => None,
        }
    }
}

/// Starts to receive the messages that a member sends after the one with this header.
fn receive_further(
    group: &MpiGroup,
    member: usize,
    header: &Header,
) -> std::result::Result<Vec<IncomingMessage>, LibraryFailure> {
    let parts = eager_all_reduce::message_words(header, group.members.len()).into_iter().flatten().skip(1);
    let receive = |part: Range<usize>| {
        let transfer = Transfer::receive_words(group.comm, member, tags::EAGER_DATA, part.len())?;
        Ok(IncomingMessage { member, transfer })
    };
    parts.map(receive).collect()
}

fn all_received(receipts: &mut [IncomingMessage]) -> std::result::Result<bool, LibraryFailure> {
    for receipt in receipts {
        if !receipt.transfer.test()? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl LibraryFailure {
    /// Converts into an error of `rank`, a rank of the world, in `call`.
    pub(super) fn error(self, rank: usize, call: &Call) -> Error {
        Error::Library { backend: NAME, rank, call: call.clone(), message: self.0 }
    }
}

//! Matching of the calls of a group's ranks. An operation has one *slot* for each member that takes
//! part: slot `i` is that of the member with number `i` in the group, or in a message 0 for the
//! sender and 1 for the receiver. The *world* is the set of all ranks.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

use super::exchange::Exchange;
use super::sync::{AtomicU8, Mutex, MutexGuard, Ordering};
use crate::{Call, Element, Error, Exchanged, HostBuffer, Result};

/// State shared by the members of a group.
#[derive(Debug)]
pub(super) struct ThreadGroup {
    /// Identifier of the group, unique among the groups of a world. The group of all ranks has 0.
    pub(super) id: u64,
    /// Rank in the world of each member, indexed by its number in the group.
    pub(super) members: Vec<usize>,
    table: Mutex<OperationTable>,
    /// Subgroups created by [`Group::group`](crate::Group::group). They live as long as this group,
    /// because the same list returns the same subgroup.
    cached_subgroups: Mutex<HashMap<Vec<usize>, Arc<ThreadGroup>>>,
}

/// Operations that some members have not called yet, and the sequence number of each member's next
/// one.
#[derive(Debug)]
struct OperationTable {
    next_collective: Vec<u64>,
    /// Next sequence number of each end of a channel. Removed when both are equal.
    next_message: HashMap<MessageChannel, [u64; 2]>,
    partial: HashMap<OperationKey, PartialOperation>,
}

/// Identifier of an operation within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OperationKey {
    /// Sequence number of a collective: the n-th one that each member starts on the group, from 0.
    Collective(u64),
    /// Channel and sequence number of a message: the n-th one of this channel, from 0.
    Message(MessageChannel, u64),
}

/// Sender, receiver and tag of a message. The n-th send of a channel matches its n-th receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct MessageChannel {
    /// Number of the sender in the group.
    pub(super) from: usize,
    /// Number of the receiver in the group.
    pub(super) to: usize,
    /// Tag given by the caller.
    pub(super) tag: u32,
}

/// End of a message: its sender or its receiver. Its number is the member's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum MessageEnd {
    /// Rank that sends.
    Sender = 0,
    /// Rank that receives.
    Receiver = 1,
}

/// Rank that takes part in an operation, as identified by the kind of the operation.
#[derive(Debug, Clone, Copy)]
pub(super) enum Participant {
    /// Member of a collective, by its number in the group.
    Member(usize),
    /// One end of a message of this channel.
    End(MessageEnd, MessageChannel),
}

/// An operation that some of its members have not called yet.
#[derive(Debug)]
struct PartialOperation {
    calls: Vec<Option<Call>>,
    readiness: Arc<Readiness>,
    /// An `Exchange<T>`. The first member determines `T`.
    exchange: Arc<dyn Any + Send + Sync>,
}

/// State of an operation: waiting for members, ready for the work, or failed.
#[derive(Debug)]
pub(super) struct Readiness {
    state: AtomicU8,
    failure: Mutex<Option<Error>>,
}

const WAITING: u8 = 0;
const READY: u8 = 1;
const FAILED: u8 = 2;

impl Readiness {
    fn waiting() -> Self {
        Self { state: AtomicU8::new(WAITING), failure: Mutex::new(None) }
    }

    /// Whether all members have called the operation and its work can begin.
    pub(super) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY
    }

    /// Returns the error of the operation if it has failed, otherwise `None`.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.state.load(Ordering::Acquire) != FAILED {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_ready(&self) {
        self.state.store(READY, Ordering::Release);
    }

    /// Fails the operation. The first error is kept, because members may have returned it already.
    fn fail(&self, failure: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.state.store(FAILED, Ordering::Release);
    }
}

/// Operation that a member has joined by its call.
#[derive(Debug)]
pub(super) struct JoinedOperation<T> {
    /// Identifier of the operation in its group.
    pub(super) key: OperationKey,
    /// Slot of the member.
    pub(super) slot: usize,
    /// State of the operation, shared by its members.
    pub(super) readiness: Arc<Readiness>,
    /// Buffers of the members, and the work on them.
    pub(super) exchange: Arc<Exchange<T>>,
}

impl ThreadGroup {
    /// Creates a group without operations. `members` are ranks of the world, in the order of their
    /// numbers in the group.
    pub(super) fn new(id: u64, members: Vec<usize>) -> Self {
        let table = OperationTable {
            next_collective: vec![0; members.len()],
            next_message: HashMap::new(),
            partial: HashMap::new(),
        };
        Self { id, members, table: Mutex::new(table), cached_subgroups: Mutex::new(HashMap::new()) }
    }

    /// Returns the subgroup of the members with the numbers `ranks`, which `create` creates on the
    /// first call.
    pub(super) fn cached_subgroup(&self, ranks: &[usize], create: impl FnOnce() -> Arc<Self>) -> Arc<Self> {
        let mut subgroups = self.cached_subgroups.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(subgroups.entry(ranks.to_vec()).or_insert_with(create))
    }

    /// Adds a member's call and its buffers to an operation. `invalid` is an error in the call's
    /// own arguments, with which the operation fails for all members. `on_settled` is called when
    /// the operation becomes ready or fails.
    ///
    /// # Errors
    /// `invalid`, the error of the operation if it has failed, or [`Error::Mismatch`].
    pub(super) fn join<T: Element>(
        &self,
        participant: Participant,
        call: Call,
        buffers: Exchanged<HostBuffer<T>>,
        invalid: Option<Error>,
        on_settled: impl FnOnce(),
    ) -> Result<JoinedOperation<T>> {
        let mut table = self.table();
        let (key, slot) = table.next_key(participant);
        let slots = match participant {
            Participant::Member(_) => self.members.len(),
            Participant::End(..) => 2,
        };
        let mut entry = match table.partial.entry(key) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(vacant) => vacant.insert_entry(PartialOperation {
                calls: vec![None; slots],
                readiness: Arc::new(Readiness::waiting()),
                exchange: Arc::new(Exchange::<T>::new(&call.operation, slots)),
            }),
        };
        let operation = entry.get_mut();
        let readiness = Arc::clone(&operation.readiness);
        let exchange = Arc::clone(&operation.exchange).downcast::<Exchange<T>>();

        if let Some(failure) = invalid.or_else(|| self.conflict(key, slot, &call, &operation.calls)) {
            readiness.fail(failure);
        } else if let Ok(exchange) = &exchange {
            // SAFETY: each member deposits once, because its next call has another key. The work
            // begins after the last member's deposit; the table's lock orders them.
            unsafe { exchange.deposit(slot, &call.operation, buffers) };
        }
        operation.calls[slot] = Some(call);
        let complete = operation.calls.iter().all(Option::is_some);
        if complete {
            entry.remove();
        }
        let failure = readiness.failure();
        if complete && failure.is_none() {
            readiness.set_ready();
        }
        drop(table);
        if complete || failure.is_some() {
            on_settled();
        }
        match (failure, exchange) {
            (None, Ok(exchange)) => Ok(JoinedOperation { key, slot, readiness, exchange }),
            (Some(failure), _) => Err(failure),
            (None, Err(_)) => unreachable!("calls with other elements are in conflict"),
        }
    }

    /// Fails an operation that still waits for members, if `why` returns an error. `why` is given
    /// the missing ranks (of the world) and the call of the member at `slot`.
    pub(super) fn fail_if_waiting(
        &self,
        key: OperationKey,
        slot: usize,
        readiness: &Arc<Readiness>,
        why: impl FnOnce(Vec<usize>, &Call) -> Option<Error>,
    ) {
        let table = self.table();
        // The key may belong to another operation by now.
        let Some(operation) =
            table.partial.get(&key).filter(|operation| Arc::ptr_eq(&operation.readiness, readiness))
        else {
            return;
        };
        let Some(Some(call)) = operation.calls.get(slot) else { return };
        let missing = (0..operation.calls.len())
            .filter(|&other| operation.calls[other].is_none())
            .map(|other| self.world_rank(key, other))
            .collect();
        if let Some(failure) = why(missing, call) {
            operation.readiness.fail(failure);
        }
    }

    fn conflict(&self, key: OperationKey, slot: usize, call: &Call, calls: &[Option<Call>]) -> Option<Error> {
        // A member also receives the elements that it sends to itself.
        let itself = (slot, Some(call));
        let others = calls.iter().map(Option::as_ref).enumerate();
        std::iter::once(itself).chain(others).find_map(|(other, other_call)| {
            let other_call = other_call.filter(|other_call| !other_call.agrees_with(other, call, slot))?;
            Some(Error::Mismatch {
                first: self.world_rank(key, other),
                first_call: Box::new(other_call.clone()),
                second: self.world_rank(key, slot),
                second_call: Box::new(call.clone()),
            })
        })
    }

    /// Returns the rank in the world of the member at an operation's slot.
    pub(super) fn world_rank(&self, key: OperationKey, slot: usize) -> usize {
        match key {
            OperationKey::Message(channel, _) if slot == MessageEnd::Sender as usize => {
                self.members[channel.from]
            }
            OperationKey::Message(channel, _) => self.members[channel.to],
            OperationKey::Collective(_) => self.members[slot],
        }
    }

    fn table(&self) -> MutexGuard<'_, OperationTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OperationTable {
    fn next_key(&mut self, participant: Participant) -> (OperationKey, usize) {
        match participant {
            Participant::Member(member) => {
                let sequence = self.next_collective[member];
                self.next_collective[member] += 1;
                (OperationKey::Collective(sequence), member)
            }
            Participant::End(end, channel) => {
                let next = self.next_message.entry(channel).or_default();
                let sequence = next[end as usize];
                next[end as usize] += 1;
                if next[0] == next[1] {
                    self.next_message.remove(&channel);
                }
                (OperationKey::Message(channel, sequence), end as usize)
            }
        }
    }
}

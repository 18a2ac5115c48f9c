//! Where the calls of a group's ranks are matched.
#![allow(unsafe_code)]

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, PoisonError};

use super::exchange::Exchange;
use super::sync::{AtomicU8, Mutex, MutexGuard, Ordering};
use crate::{Call, Element, Error, Exchanged, Result};

/// What the members of a group share.
#[derive(Debug)]
pub(super) struct GroupState {
    /// Distinct among the groups of a world.
    pub(super) id: u64,
    /// The world's ranks, by their place in the group.
    pub(super) members: Vec<usize>,
    table: Mutex<Table>,
    /// The subgroups that were asked for by their lists: as long as this group, since asking again gives the same.
    listed: Mutex<HashMap<Vec<usize>, Arc<GroupState>>>,
}

/// The operations that wait for more members, and the number of each member's next one.
#[derive(Debug)]
struct Table {
    next_collective: Vec<u64>,
    /// Of each end of a channel, until both are equal.
    next_message: HashMap<Channel, [u64; 2]>,
    partial: HashMap<Key, PartialOperation>,
}

/// What identifies an operation within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// The n-th collective of each member.
    Collective(u64),
    /// The n-th message of a channel.
    Message(Channel, u64),
}

/// What messages are matched by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Channel {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) tag: u32,
}

/// The two members of a message; their numbers are their slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum End {
    Sender = 0,
    Receiver = 1,
}

/// How a member takes part.
#[derive(Debug, Clone, Copy)]
pub(super) enum Role {
    Member(usize),
    End(End, Channel),
}

/// An operation that not all of its members have called yet.
#[derive(Debug)]
struct PartialOperation {
    calls: Vec<Option<Call>>,
    readiness: Arc<Readiness>,
    /// An `Exchange<T>`; the first member decides what `T` is.
    exchange: Arc<dyn Any + Send + Sync>,
}

/// Whether the work of an operation can begin: it waits until the last member has called it or something fails.
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

    /// Whether all members have called it and the work can begin.
    pub(super) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) == READY
    }

    /// Why the operation has failed.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.state.load(Ordering::Acquire) != FAILED {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set_ready(&self) {
        self.state.store(READY, Ordering::Release);
    }

    /// The first failure stays: members may have returned it already.
    fn fail(&self, failure: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.state.store(FAILED, Ordering::Release);
    }
}

/// An operation that a member has joined.
#[derive(Debug)]
pub(super) struct Joined<T> {
    pub(super) key: Key,
    pub(super) slot: usize,
    pub(super) readiness: Arc<Readiness>,
    pub(super) exchange: Arc<Exchange<T>>,
}

impl GroupState {
    pub(super) fn new(id: u64, members: Vec<usize>) -> Self {
        let table = Table {
            next_collective: vec![0; members.len()],
            next_message: HashMap::new(),
            partial: HashMap::new(),
        };
        Self { id, members, table: Mutex::new(table), listed: Mutex::new(HashMap::new()) }
    }

    /// The subgroup of the members at `ranks`, the same each time; `make` makes it the first time.
    pub(super) fn listed(&self, ranks: &[usize], make: impl FnOnce() -> Arc<Self>) -> Arc<Self> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(listed.entry(ranks.to_vec()).or_insert_with(make))
    }

    /// Adds a member's call and its buffers to an operation. `invalid` is what is wrong with the call by itself, which
    /// then fails for all members. `settled` is called once the operation is ready or has
    /// failed.
    pub(super) fn join<T: Element>(
        &self,
        role: Role,
        call: Call,
        buffers: Exchanged<Vec<T>>,
        invalid: Option<Error>,
        settled: impl FnOnce(),
    ) -> Result<Joined<T>> {
        let mut table = self.table();
        let (key, slot) = table.next_key(role);
        let slots = match role {
            Role::Member(_) => self.members.len(),
            Role::End(..) => 2,
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
            // SAFETY: once for each member, whose next call gets another key; the work begins when the last one has come,
            // after this, because of the table's lock.
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
            settled();
        }
        match (failure, exchange) {
            (None, Ok(exchange)) => Ok(Joined { key, slot, readiness, exchange }),
            (Some(failure), _) => Err(failure),
            (None, Err(_)) => unreachable!("calls with other elements are in conflict"),
        }
    }

    /// Fails an operation that still waits if `why` gives an error for the ranks that are missing and the call that this
    /// member made.
    pub(super) fn give_up(
        &self,
        key: Key,
        slot: usize,
        readiness: &Arc<Readiness>,
        why: impl FnOnce(Vec<usize>, &Call) -> Option<Error>,
    ) {
        let table = self.table();
        // Another operation may have the key by now.
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

    fn conflict(&self, key: Key, slot: usize, call: &Call, calls: &[Option<Call>]) -> Option<Error> {
        // A member also receives what it sends to itself.
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

    /// The rank of the world in a slot of an operation.
    pub(super) fn world_rank(&self, key: Key, slot: usize) -> usize {
        match key {
            Key::Message(channel, _) if slot == End::Sender as usize => self.members[channel.from],
            Key::Message(channel, _) => self.members[channel.to],
            Key::Collective(_) => self.members[slot],
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn next_key(&mut self, role: Role) -> (Key, usize) {
        match role {
            Role::Member(member) => {
                let sequence = self.next_collective[member];
                self.next_collective[member] += 1;
                (Key::Collective(sequence), member)
            }
            Role::End(end, channel) => {
                let next = self.next_message.entry(channel).or_default();
                let sequence = next[end as usize];
                next[end as usize] += 1;
                if next[0] == next[1] {
                    self.next_message.remove(&channel);
                }
                (Key::Message(channel, sequence), end as usize)
            }
        }
    }
}

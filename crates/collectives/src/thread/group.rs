//! Where the ranks of a group meet.
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

/// The operations that still wait for members, and what each member's next one is.
#[derive(Debug)]
struct Table {
    next_collective: Vec<u64>,
    /// Of each end of a channel, until both are level.
    next_message: HashMap<Channel, [u64; 2]>,
    meetings: HashMap<Key, Meeting>,
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
struct Meeting {
    calls: Vec<Option<Call>>,
    fate: Arc<Fate>,
    /// An `Exchange<T>`; the first member decides what `T` is.
    exchange: Arc<dyn Any + Send + Sync>,
}

/// What becomes of an operation: it stays undecided until the last member comes or something goes wrong.
#[derive(Debug)]
pub(super) struct Fate {
    state: AtomicU8,
    failure: Mutex<Option<Error>>,
}

const UNDECIDED: u8 = 0;
const OPEN: u8 = 1;
const FAILED: u8 = 2;

impl Fate {
    fn undecided() -> Self {
        Self { state: AtomicU8::new(UNDECIDED), failure: Mutex::new(None) }
    }

    /// Whether all members have come and the work can begin.
    pub(super) fn is_open(&self) -> bool {
        self.state.load(Ordering::Acquire) == OPEN
    }

    /// Why the operation will never be open.
    pub(super) fn failure(&self) -> Option<Error> {
        if self.state.load(Ordering::Acquire) != FAILED {
            return None;
        }
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn open(&self) {
        self.state.store(OPEN, Ordering::Release);
    }

    /// The first failure stands: it is what the members that came before have been told.
    fn fail(&self, failure: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.state.store(FAILED, Ordering::Release);
    }
}

/// A member's hold on an operation that it has joined.
#[derive(Debug)]
pub(super) struct Joined<T> {
    pub(super) key: Key,
    pub(super) slot: usize,
    pub(super) fate: Arc<Fate>,
    pub(super) exchange: Arc<Exchange<T>>,
}

impl GroupState {
    pub(super) fn new(id: u64, members: Vec<usize>) -> Self {
        let table = Table {
            next_collective: vec![0; members.len()],
            next_message: HashMap::new(),
            meetings: HashMap::new(),
        };
        Self { id, members, table: Mutex::new(table), listed: Mutex::new(HashMap::new()) }
    }

    /// The subgroup of the members at `ranks`, the same each time; `make` makes it the first time.
    pub(super) fn listed(&self, ranks: &[usize], make: impl FnOnce() -> Arc<Self>) -> Arc<Self> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(listed.entry(ranks.to_vec()).or_insert_with(make))
    }

    /// Leaves a call and its buffers with the other members'. `invalid` is what is wrong with the call by itself, which
    /// then fails for all members. `decided` is called when the operation's fate is.
    pub(super) fn join<T: Element>(
        &self,
        role: Role,
        call: Call,
        buffers: Exchanged<Vec<T>>,
        invalid: Option<Error>,
        decided: impl FnOnce(),
    ) -> Result<Joined<T>> {
        let mut table = self.table();
        let (key, slot) = table.next_key(role);
        let slots = match role {
            Role::Member(_) => self.members.len(),
            Role::End(..) => 2,
        };
        let mut entry = match table.meetings.entry(key) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(vacant) => vacant.insert_entry(Meeting {
                calls: vec![None; slots],
                fate: Arc::new(Fate::undecided()),
                exchange: Arc::new(Exchange::<T>::new(&call.operation, slots)),
            }),
        };
        let meeting = entry.get_mut();
        let fate = Arc::clone(&meeting.fate);
        let exchange = Arc::clone(&meeting.exchange).downcast::<Exchange<T>>();

        if let Some(failure) = invalid.or_else(|| self.conflict(key, slot, &call, &meeting.calls)) {
            fate.fail(failure);
        } else if let Ok(exchange) = &exchange {
            // SAFETY: once for each member, whose next call gets another key; the work begins when the last one has come,
            // after this, because of the table's lock.
            unsafe { exchange.deposit(slot, &call.operation, buffers) };
        }
        meeting.calls[slot] = Some(call);
        let complete = meeting.calls.iter().all(Option::is_some);
        if complete {
            entry.remove();
        }
        let failure = fate.failure();
        if complete && failure.is_none() {
            fate.open();
        }
        drop(table);
        if complete || failure.is_some() {
            decided();
        }
        match (failure, exchange) {
            (None, Ok(exchange)) => Ok(Joined { key, slot, fate, exchange }),
            (Some(failure), _) => Err(failure),
            (None, Err(_)) => unreachable!("calls with other elements are in conflict"),
        }
    }

    /// Lets the operation of this fate fail if it still waits and `why` gives a reason. It gets the ranks that are missing
    /// and the call that this member made.
    pub(super) fn give_up(
        &self,
        key: Key,
        slot: usize,
        fate: &Arc<Fate>,
        why: impl FnOnce(Vec<usize>, &Call) -> Option<Error>,
    ) {
        let table = self.table();
        // Another operation may have the key by now.
        let Some(meeting) = table.meetings.get(&key).filter(|meeting| Arc::ptr_eq(&meeting.fate, fate))
        else {
            return;
        };
        let Some(Some(call)) = meeting.calls.get(slot) else { return };
        let missing = (0..meeting.calls.len())
            .filter(|&other| meeting.calls[other].is_none())
            .map(|other| self.world_rank(key, other))
            .collect();
        if let Some(failure) = why(missing, call) {
            meeting.fate.fail(failure);
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

//! What a rank's communicators share, and how their failures become errors.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::api::UniqueId;
use super::bootstrap::{GatherError, Store};
use super::buffer::Abandoned;
use super::comm::{Failure, NcclComm, Settings};
use super::enqueued::PendingOperations;
use super::library::NcclLibrary;
use crate::{Call, Departure, Error, Result};

/// How long the ranks of a failed operation wait for each other to find out which of them is missing.
const DIAGNOSIS: Duration = Duration::from_secs(1);

/// A rank, and what its groups share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) rank: usize,
    pub(super) library: NcclLibrary,
    pub(super) settings: Settings,
    /// The groups that were asked for by their ranks, in the order in which they were asked for first: for ever, since
    /// asking again gives the same.
    listed: Mutex<Vec<Listed>>,
    abandoned: Mutex<Abandoned>,
    /// Last, so that it disconnects from the other ranks after everything else is dropped.
    pub(super) store: Store,
}

/// A group's id, and the group once it is made. Each has a lock of its own: threads of a rank make groups side by side.
type Listed = (String, Arc<Mutex<Option<Arc<GroupState>>>>);

/// A communicator and its members.
#[derive(Debug)]
pub(super) struct GroupState {
    /// The same on all its members, and different from that of any other group.
    pub(super) id: String,
    /// Ranks of the world.
    pub(super) members: Vec<usize>,
    /// This rank's place among them.
    pub(super) rank: usize,
    pub(super) comm: NcclComm,
    /// Collectives started so far.
    calls: AtomicU64,
    pub(super) pending: PendingOperations,
    health: Mutex<GroupHealth>,
    /// The diagnosis is complete.
    diagnosed: Condvar,
}

#[derive(Debug)]
enum GroupHealth {
    Healthy,
    /// A thread is aborting the communicator and finding out why.
    Diagnosing,
    /// Why the group cannot be used any more.
    Failed(Error),
}

/// Which of a group's operations.
#[derive(Debug, Clone)]
pub(super) enum Ticket {
    /// All members call it: its number.
    Collective(u64),
    /// One other member has to call it.
    Message(usize),
}

impl World {
    pub(super) fn new(rank: usize, library: NcclLibrary, settings: Settings, store: Store) -> Self {
        Self { rank, library, settings, listed: Mutex::default(), abandoned: Mutex::default(), store }
    }

    pub(super) fn abandoned(&self) -> MutexGuard<'_, Abandoned> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The group with this id, made by `make` the first time.
    pub(super) fn listed(
        &self,
        id: &str,
        make: impl FnOnce() -> Result<GroupState>,
    ) -> Result<Arc<GroupState>> {
        let mut listed = self.listed.lock().unwrap_or_else(PoisonError::into_inner);
        let known = listed.iter().find(|(known, _)| known == id).map(|(_, slot)| Arc::clone(slot));
        let slot = known.unwrap_or_else(|| {
            let slot = Arc::default();
            listed.push((id.to_owned(), Arc::clone(&slot)));
            slot
        });
        drop(listed);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = &*slot {
            return Ok(Arc::clone(group));
        }
        Ok(Arc::clone(slot.insert(Arc::new(make()?))))
    }

    /// A communicator of its own over `members`, this rank at `rank` among them: the first one's id, given to the others.
    pub(super) fn make_group(
        &self,
        id: String,
        members: Vec<usize>,
        rank: usize,
        call: &Call,
    ) -> Result<GroupState> {
        let offer = if rank == 0 { id_bytes(&self.library.unique_id()?) } else { Vec::new() };
        let offers = self
            .store
            .gather_all_or_none(&id, &members, rank, &offer, self.settings.timeout)
            .map_err(|unmet| self.gather_error(unmet, call))?;
        let unique_id = offers.first().and_then(|offer| id_from_bytes(offer)).ok_or_else(|| {
            self.library_error(call, "the first rank of the group sent no communicator's id".to_owned())
        })?;
        let comm = NcclComm::init(&self.settings, rank, members.len(), unique_id)
            .map_err(|failure| self.diagnose(failure, (&id, &members, rank), call, &Ticket::Collective(0)))?;
        Ok(GroupState::new(id, members, rank, comm))
    }

    pub(super) fn library_error(&self, call: &Call, message: String) -> Error {
        Error::Library { backend: "NCCL", rank: self.rank, call: call.clone(), message }
    }

    /// A failed gather in `call` as an error.
    fn gather_error(&self, unmet: GatherError, call: &Call) -> Error {
        match unmet {
            GatherError::TimedOut { missing, waited } => {
                Error::TimedOut { missing, call: call.clone(), waited }
            }
            GatherError::Departed(rank) => {
                Error::RankFailed { rank, how: Departure::Lost, call: call.clone() }
            }
            GatherError::GivenUp(ranks) => self.library_error(
                call,
                format!("this rank came too late: ranks {ranks:?} no longer waited for it"),
            ),
        }
    }

    /// A failure as an error. NCCL does not report which rank is missing: the ranks that fail gather once more to find out.
    fn diagnose(
        &self,
        failure: Failure,
        (id, members, rank): (&str, &[usize], usize),
        call: &Call,
        ticket: &Ticket,
    ) -> Error {
        self.store.failed();
        let sequence = match ticket {
            Ticket::Collective(sequence) => sequence,
            Ticket::Message(peer) => {
                let missing = vec![members[*peer]];
                return match failure {
                    Failure::TimedOut(waited) => Error::TimedOut { missing, call: call.clone(), waited },
                    Failure::Library(message) => self.library_error(call, message),
                };
            }
        };
        let wait = DIAGNOSIS.min(self.settings.timeout);
        let met = self.store.gather(&diagnosis_key(id, *sequence), members, rank, &[], wait);
        match (met, failure) {
            (Err(GatherError::Departed(rank)), _) => {
                Error::RankFailed { rank, how: Departure::Lost, call: call.clone() }
            }
            (Err(GatherError::TimedOut { missing, .. } | GatherError::GivenUp(missing)), Failure::TimedOut(waited)) => {
                Error::TimedOut { missing, call: call.clone(), waited }
            }
            (Ok(_), Failure::TimedOut(waited)) => self.library_error(
                call,
                format!(
                    "not done within {waited:?} though all ranks are there: they made different calls, or need longer"
                ),
            ),
            (_, Failure::Library(message)) => self.library_error(call, message),
        }
    }
}

impl GroupState {
    pub(super) fn new(id: String, members: Vec<usize>, rank: usize, comm: NcclComm) -> Self {
        Self {
            id,
            members,
            rank,
            comm,
            calls: AtomicU64::new(1),
            pending: PendingOperations::default(),
            health: Mutex::new(GroupHealth::Healthy),
            diagnosed: Condvar::new(),
        }
    }

    /// The number of the next collective.
    pub(super) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// Lets the others know, without waiting for them, that this rank has started a collective. Whether that was sent.
    pub(super) fn announce(&self, world: &World, sequence: u64) -> bool {
        world.store.put(&diagnosis_key(&self.id, sequence), &self.members, self.rank)
    }

    /// The group's failure, if it has failed. Waits while another thread is diagnosing it.
    pub(super) fn check(&self) -> Result<()> {
        let health =
            self.diagnosed.wait_while(self.health(), |health| matches!(health, GroupHealth::Diagnosing));
        match &*health.unwrap_or_else(PoisonError::into_inner) {
            GroupHealth::Failed(error) => Err(error.clone()),
            GroupHealth::Healthy | GroupHealth::Diagnosing => Ok(()),
        }
    }

    /// As [`check`](Self::check), but `false` while another thread is diagnosing it.
    pub(super) fn is_healthy(&self) -> Result<bool> {
        match &*self.health() {
            GroupHealth::Healthy => Ok(true),
            GroupHealth::Diagnosing => Ok(false),
            GroupHealth::Failed(error) => Err(error.clone()),
        }
    }

    /// Fails the group because of a failure in `call`. The first failure is the error of all operations.
    pub(super) fn fail(&self, world: &World, failure: &Failure, call: &Call, ticket: &Ticket) -> Error {
        loop {
            if let Some(error) = self.try_fail(world, failure, call, ticket) {
                return error;
            }
            if let Err(error) = self.check() {
                return error;
            }
        }
    }

    /// As [`fail`](Self::fail), but `None` while another thread does so.
    pub(super) fn try_fail(
        &self,
        world: &World,
        failure: &Failure,
        call: &Call,
        ticket: &Ticket,
    ) -> Option<Error> {
        let place = (self.id.as_str(), self.members.as_slice(), self.rank);
        self.end(failure.clone(), || world.diagnose(failure.clone(), place, call, ticket))
    }

    /// Fails the group because of a failed gather in `call`.
    pub(super) fn fail_gather(&self, world: &World, unmet: GatherError, call: &Call) -> Error {
        let error = world.gather_error(unmet, call);
        world.store.failed();
        self.end(Failure::Library(error.to_string()), || error.clone()).unwrap_or(error)
    }

    /// Aborts the communicator, and then diagnoses why. No lock is held meanwhile.
    fn end(&self, failure: Failure, reason: impl FnOnce() -> Error) -> Option<Error> {
        let mut health = self.health();
        match &*health {
            GroupHealth::Failed(error) => return Some(error.clone()),
            GroupHealth::Diagnosing => return None,
            GroupHealth::Healthy => *health = GroupHealth::Diagnosing,
        }
        drop(health);
        self.comm.abort(failure);
        let error = reason();
        *self.health() = GroupHealth::Failed(error.clone());
        self.diagnosed.notify_all();
        Some(error)
    }

    fn health(&self) -> MutexGuard<'_, GroupHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The key under which ranks that have started a collective put a value, if it fails or is slow.
fn diagnosis_key(id: &str, sequence: u64) -> String {
    format!("{id} failed {sequence}")
}

/// An id as it is sent.
pub(super) fn id_bytes(id: &UniqueId) -> Vec<u8> {
    id.internal.iter().map(|&byte| u8::from_ne_bytes(byte.to_ne_bytes())).collect()
}

/// An id as it arrived.
pub(super) fn id_from_bytes(bytes: &[u8]) -> Option<UniqueId> {
    let bytes: [u8; 128] = bytes.try_into().ok()?;
    Some(UniqueId { internal: bytes.map(|byte| std::ffi::c_char::from_ne_bytes([byte])) })
}

//! Groups of a rank, and the diagnosis of their failures. NCCL does not report which rank is
//! missing. A *diagnosis* therefore asks the other ranks, through the key-value store at rank 0,
//! which of them have started the failed operation. The *world* is the set of all ranks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda::nccl::ncclUniqueId;

use super::bootstrap::{GatherError, Members, Store};
use super::comm::{CommFailure, NcclComm, Settings};
use crate::{Call, Departure, Error, Result};

/// Maximum time for which the ranks of a failed operation wait for each other to find the missing
/// rank.
const DIAGNOSIS_TIMEOUT: Duration = Duration::from_secs(1);

/// State of a rank, shared by its groups.
#[derive(Debug)]
pub(super) struct NcclWorldState {
    /// Number of this rank in the world.
    pub(super) rank: usize,
    /// Settings of all communicators of the rank.
    pub(super) settings: Settings,
    /// Groups created from a list of ranks, in the order of their first requests. Never removed,
    /// because the same list returns the same group.
    cached_groups: Mutex<Vec<CachedGroup>>,
    /// Key-value store at rank 0, shared by all ranks. Last field, so that it disconnects from the
    /// other ranks after everything else is dropped.
    pub(super) store: Store,
}

/// Identifier of a group, and the group after its creation. Each has a lock, so that threads of a
/// rank create groups concurrently.
type CachedGroup = (String, Arc<Mutex<Option<Arc<NcclGroup>>>>);

/// Communicator of NCCL with its members, and whether it has failed.
#[derive(Debug)]
pub(super) struct NcclGroup {
    /// Identifier of the group, the same on all members and unique among the groups of the world.
    pub(super) id: String,
    /// Rank in the world of each member, indexed by its number in the group.
    pub(super) members: Vec<usize>,
    /// This rank's number in the group.
    pub(super) rank: usize,
    /// Communicator of NCCL.
    pub(super) comm: NcclComm,
    /// Sequence number of the next collective.
    next_sequence: AtomicU64,
    health: Mutex<GroupHealth>,
    /// Notified when a diagnosis is complete.
    diagnosed: Condvar,
}

#[derive(Debug)]
enum GroupHealth {
    Healthy,
    /// A thread is aborting the communicator and diagnosing the failure.
    Diagnosing,
    /// Error because of which the group cannot be used any more.
    Failed(Error),
}

/// Identifier of an operation of a group.
#[derive(Debug, Clone)]
pub(super) enum OperationId {
    /// Sequence number of a collective among those of the group, which all members call. 0 is the
    /// creation of the group.
    Collective(u64),
    /// Number in the group of the other member of a message.
    Message(usize),
}

impl NcclWorldState {
    /// Creates the state of a rank without groups.
    pub(super) fn new(rank: usize, settings: Settings, store: Store) -> Self {
        Self { rank, settings, cached_groups: Mutex::default(), store }
    }

    /// Returns the group with this identifier, which `create` creates on the first call. After an
    /// error of `create`, which is returned, the next call tries again.
    pub(super) fn cached_group(
        &self,
        id: &str,
        create: impl FnOnce() -> Result<NcclGroup>,
    ) -> Result<Arc<NcclGroup>> {
        let mut groups = self.cached_groups.lock().unwrap_or_else(PoisonError::into_inner);
        let known = groups.iter().find(|(known, _)| known == id).map(|(_, slot)| Arc::clone(slot));
        let slot = known.unwrap_or_else(|| {
            let slot = Arc::default();
            groups.push((id.to_owned(), Arc::clone(&slot)));
            slot
        });
        drop(groups);
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(group) = &*slot {
            return Ok(Arc::clone(group));
        }
        Ok(Arc::clone(slot.insert(Arc::new(create()?))))
    }

    /// Creates the group of `members` (ranks of the world), in which this rank has number `rank`.
    /// The first member sends NCCL's identifier to the others. `call` is named in errors.
    ///
    /// # Errors
    /// [`Error::TimedOut`] or [`Error::RankFailed`] if a member is missing, `Error::Library` or
    /// `Error::Unavailable` for an error of NCCL.
    pub(super) fn create_group(
        &self,
        id: String,
        members: Vec<usize>,
        rank: usize,
        call: &Call,
    ) -> Result<NcclGroup> {
        let offer = if rank == 0 {
            id_bytes(&self.settings.nccl.unique_id().map_err(Error::in_cuda("create an identifier"))?)
        } else {
            Vec::new()
        };
        let offers = self
            .store
            .gather_all_or_none(
                Members { key: &id, ranks: &members, place: rank },
                &offer,
                self.settings.timeout,
            )
            .map_err(|gather_error| self.gather_error(gather_error, call))?;
        let unique_id = offers.first().and_then(|offer| id_from_bytes(offer)).ok_or_else(|| {
            self.library_error(
                call,
                "the first rank of the group sent no identifier of a communicator".to_owned(),
            )
        })?;
        let comm = NcclComm::init(&self.settings, rank, members.len(), unique_id).map_err(|failure| {
            self.diagnose(failure, (&id, &members, rank), call, &OperationId::Collective(0))
        })?;
        Ok(NcclGroup::new(id, members, rank, comm))
    }

    /// Returns the error with NCCL's `message` about a call of this rank.
    pub(super) fn library_error(&self, call: &Call, message: String) -> Error {
        Error::Library { backend: "NCCL", rank: self.rank, call: call.clone(), message }
    }

    /// Converts a failed gather in `call` into an error.
    fn gather_error(&self, gather_error: GatherError, call: &Call) -> Error {
        match gather_error {
            GatherError::TimedOut { missing, waited } => {
                Error::TimedOut { missing, call: call.clone(), waited }
            }
            GatherError::Departed(rank) => {
                Error::RankFailed { rank, how: Departure::Lost, call: call.clone() }
            }
            GatherError::GivenUp(ranks) => self.library_error(
                call,
                format!("this rank was too late: ranks {ranks:?} no longer waited for it"),
            ),
        }
    }

    /// Converts a failure into an error. NCCL does not report the missing rank: the ranks that fail
    /// gather once more to find it.
    fn diagnose(
        &self,
        failure: CommFailure,
        (id, members, rank): (&str, &[usize], usize),
        call: &Call,
        operation_id: &OperationId,
    ) -> Error {
        self.store.record_failure();
        let sequence = match operation_id {
            OperationId::Collective(sequence) => sequence,
            OperationId::Message(peer) => {
                let missing = vec![members[*peer]];
                return match failure {
                    CommFailure::TimedOut(waited) => Error::TimedOut { missing, call: call.clone(), waited },
                    CommFailure::Library(message) => self.library_error(call, message),
                };
            }
        };
        let wait = DIAGNOSIS_TIMEOUT.min(self.settings.timeout);
        let key = diagnosis_key(id, *sequence);
        let gathered = self.store.gather(Members { key: &key, ranks: members, place: rank }, &[], wait);
        match (gathered, failure) {
            (Err(GatherError::Departed(rank)), _) => {
                Error::RankFailed { rank, how: Departure::Lost, call: call.clone() }
            }
            (
                Err(GatherError::TimedOut { missing, .. } | GatherError::GivenUp(missing)),
                CommFailure::TimedOut(waited),
            ) => Error::TimedOut { missing, call: call.clone(), waited },
            (Ok(_), CommFailure::TimedOut(waited)) => self.library_error(
                call,
                format!(
                    "not complete within {waited:?} although no rank is missing: the ranks made different \
                     calls, or need more time"
                ),
            ),
            (_, CommFailure::Library(message)) => self.library_error(call, message),
        }
    }
}

impl NcclGroup {
    /// Creates a group that has not failed. `rank` is this rank's number among `members`.
    pub(super) fn new(id: String, members: Vec<usize>, rank: usize, comm: NcclComm) -> Self {
        Self {
            id,
            members,
            rank,
            comm,
            next_sequence: AtomicU64::new(1),
            health: Mutex::new(GroupHealth::Healthy),
            diagnosed: Condvar::new(),
        }
    }

    /// Returns the sequence number of the next collective and increments it.
    pub(super) fn take_sequence(&self) -> u64 {
        self.next_sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Tells the store that this rank has started the collective with this sequence number, for a
    /// later diagnosis. Does not wait. Returns `false` if it was not sent, because another thread
    /// uses the connection.
    pub(super) fn announce(&self, world: &NcclWorldState, sequence: u64) -> bool {
        let key = diagnosis_key(&self.id, sequence);
        world.store.announce(Members { key: &key, ranks: &self.members, place: self.rank })
    }

    /// Returns the error of the group if it has failed. Waits while another thread diagnoses a
    /// failure.
    pub(super) fn check(&self) -> Result<()> {
        let health =
            self.diagnosed.wait_while(self.health(), |health| matches!(health, GroupHealth::Diagnosing));
        match &*health.unwrap_or_else(PoisonError::into_inner) {
            GroupHealth::Failed(error) => Err(error.clone()),
            GroupHealth::Healthy | GroupHealth::Diagnosing => Ok(()),
        }
    }

    /// Returns whether the group is usable, or its error if it has failed. `false` while another
    /// thread diagnoses a failure.
    pub(super) fn is_healthy(&self) -> Result<bool> {
        match &*self.health() {
            GroupHealth::Healthy => Ok(true),
            GroupHealth::Diagnosing => Ok(false),
            GroupHealth::Failed(error) => Err(error.clone()),
        }
    }

    /// Fails the group because of `failure` in `call`: aborts the communicator, diagnoses the cause
    /// and returns the error. If the group has failed before, returns the first error, which is
    /// that of all its operations.
    pub(super) fn fail(
        &self,
        world: &NcclWorldState,
        failure: &CommFailure,
        call: &Call,
        operation_id: &OperationId,
    ) -> Error {
        loop {
            if let Some(error) = self.try_fail(world, failure, call, operation_id) {
                return error;
            }
            if let Err(error) = self.check() {
                return error;
            }
        }
    }

    /// Like [`fail`](Self::fail), but returns `None` while another thread diagnoses a failure.
    pub(super) fn try_fail(
        &self,
        world: &NcclWorldState,
        failure: &CommFailure,
        call: &Call,
        operation_id: &OperationId,
    ) -> Option<Error> {
        let place = (self.id.as_str(), self.members.as_slice(), self.rank);
        self.end(failure.clone(), || world.diagnose(failure.clone(), place, call, operation_id))
    }

    /// Fails the group because the values of its members could not be gathered through the store in
    /// `call`.
    pub(super) fn fail_gather(
        &self,
        world: &NcclWorldState,
        gather_error: GatherError,
        call: &Call,
    ) -> Error {
        let error = world.gather_error(gather_error, call);
        world.store.record_failure();
        self.end(CommFailure::Library(error.to_string()), || error.clone()).unwrap_or(error)
    }

    /// Aborts the communicator, then diagnoses the failure. Holds no lock meanwhile.
    fn end(&self, failure: CommFailure, reason: impl FnOnce() -> Error) -> Option<Error> {
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

/// Key under which ranks that have started a collective put a value, if it fails or is slow.
fn diagnosis_key(id: &str, sequence: u64) -> String {
    format!("{id} failed {sequence}")
}

/// Encodes NCCL's identifier of a communicator as 128 bytes.
pub(super) fn id_bytes(id: &ncclUniqueId) -> Vec<u8> {
    id.internal.iter().map(|&byte| u8::from_ne_bytes(byte.to_ne_bytes())).collect()
}

/// Decodes the bytes of [`id_bytes`]. `None` if they are not 128.
pub(super) fn id_from_bytes(bytes: &[u8]) -> Option<ncclUniqueId> {
    let bytes: [u8; 128] = bytes.try_into().ok()?;
    Some(ncclUniqueId { internal: bytes.map(|byte| std::ffi::c_char::from_ne_bytes([byte])) })
}

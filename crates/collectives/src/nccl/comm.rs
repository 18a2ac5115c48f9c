//! A rank's handle of an NCCL communicator, and its lifetime: initialization, calls, and
//! destruction or abort. An *abort* ends the communicator's kernels on the device without a result.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use cuda::Context;
use cuda::nccl::{Code, IN_PROGRESS, Nccl, SUCCESS, ncclComm_t, ncclConfig_t, ncclUniqueId};

use super::polling::poll_until;
use crate::WaitStrategy;

/// Color for [`NcclComm::split`] with which a rank gets no new communicator.
pub(super) const NO_COLOR: i32 = -1;

/// Cause of the failure of a communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CommFailure {
    /// The other ranks did not make the call within this time, measured from its start.
    TimedOut(Duration),
    /// Message of NCCL or of the CUDA driver.
    Library(String),
}

impl From<cuda::Error> for CommFailure {
    fn from(error: cuda::Error) -> Self {
        Self::Library(error.to_string())
    }
}

/// Settings shared by all communicators of a rank.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// Opened library.
    pub(super) nccl: Nccl,
    /// Context of the rank's device.
    pub(super) context: Context,
    /// Maximum time for which a call or operation waits for other ranks.
    pub(super) timeout: Duration,
    /// Behaviour of this rank while it waits.
    pub(super) wait: WaitStrategy,
}

/// Communicator of NCCL on one rank. It is destroyed exactly once: finalized first if no error
/// occurred, aborted after a failure or when it is dropped in a panic.
///
/// Calls do not block in NCCL. They return at once and are polled, so that a missing rank causes a
/// time-out and an abort. NCCL takes one call at a time, which the lock ensures.
#[derive(Debug)]
pub(super) struct NcclComm {
    settings: Settings,
    state: Mutex<CommState>,
    /// Set before the abort, while the state is locked. From then on, kernels may have ended
    /// without a result.
    ending: AtomicBool,
}

#[derive(Debug)]
struct CommState {
    /// Null after an abort or destruction.
    handle: ncclComm_t,
    /// Cause of the abort.
    failure: Option<CommFailure>,
}

// SAFETY: any thread may use NCCL's handles if calls do not overlap, and the state is behind a
// lock.
unsafe impl Send for CommState {}

impl NcclComm {
    /// Initializes the communicator as rank `rank` of `size`, with the other ranks that pass the
    /// same identifier. Waits for them up to the time-out.
    ///
    /// # Errors
    /// `CommFailure::TimedOut` if a rank is missing, `CommFailure::Library` for an error of NCCL or
    /// the driver.
    pub(super) fn init(
        settings: &Settings,
        rank: usize,
        size: usize,
        id: ncclUniqueId,
    ) -> Result<Self, CommFailure> {
        let (rank, size) = (count(rank)?, count(size)?);
        settings.context.bind()?;
        let mut config = non_blocking_config();
        let slot = HandleSlot::new();
        // SAFETY: `config` is complete, and `slot` outlives the call and its asynchronous part.
        let code = unsafe { settings.nccl.init_rank(slot.pointer(), size, id, rank, &raw mut config) };
        let comm = Self::new(settings, slot.get());
        let mut state = comm.lock();
        if state.handle.is_null() {
            slot.free();
            let message = if is_error(code) {
                comm.message(code, ptr::null_mut())
            } else {
                "NCCL returned no communicator".to_owned()
            };
            return Err(comm.fail(&mut state, message));
        }
        // After an error the slot is leaked, because the asynchronous part may still write to it.
        comm.wait_until_complete(&mut state, code)?;
        slot.free();
        drop(state);
        Ok(comm)
    }

    fn new(settings: &Settings, handle: ncclComm_t) -> Self {
        let state = Mutex::new(CommState { handle, failure: None });
        Self { settings: settings.clone(), state, ending: AtomicBool::new(false) }
    }

    /// Divides the communicator: ranks with the same `color` form a new one, ordered by `key`. All
    /// ranks of this communicator must call it. Returns `None` for [`NO_COLOR`].
    ///
    /// # Errors
    /// As [`init`](Self::init), and the earlier failure if the communicator has failed.
    pub(super) fn split(&self, color: i32, key: i32) -> Result<Option<Self>, CommFailure> {
        let slot = HandleSlot::new();
        let mut state = self.usable()?;
        // SAFETY: the handle is alive; without a configuration the new communicator has its
        // parent's; `slot` outlives the asynchronous part of the call.
        let code =
            unsafe { self.settings.nccl.split(state.handle, color, key, slot.pointer(), ptr::null_mut()) };
        let outcome = self.wait_until_complete(&mut state, code);
        let child = slot.get();
        let child = (!child.is_null()).then(|| Self::new(&self.settings, child));
        if let Err(failure) = outcome {
            // The slot is leaked, as in `init`. The child, if there is one, is aborted like its
            // parent.
            if let Some(child) = &child {
                child.abort(failure.clone());
            }
            return Err(failure);
        }
        slot.free();
        drop(state);
        match (child, color) {
            (_, NO_COLOR) => Ok(None),
            (Some(child), _) => {
                let mut state = child.lock();
                child.wait_until_complete(&mut state, IN_PROGRESS)?;
                drop(state);
                Ok(Some(child))
            }
            (None, _) => Err(CommFailure::Library("NCCL returned no communicator for the split".to_owned())),
        }
    }

    /// Makes the calls of the closure `calls` as one group of NCCL, and returns when their work is
    /// enqueued in its stream. The closure returns `SUCCESS` or the code of its first failed call.
    ///
    /// # Errors
    /// As [`split`](Self::split).
    pub(super) fn enqueue(&self, calls: impl FnOnce(&Nccl, ncclComm_t) -> Code) -> Result<(), CommFailure> {
        let mut state = self.usable()?;
        let nccl = &self.settings.nccl;
        // SAFETY: every start has its end, on the same thread, whatever the calls return.
        let code = unsafe {
            let started = nccl.group_start();
            if started == SUCCESS {
                let called = calls(nccl, state.handle);
                let ended = nccl.group_end();
                if is_error(called) { called } else { ended }
            } else {
                started
            }
        };
        self.wait_until_complete(&mut state, code)
    }

    /// Returns the cause of the failure if the communicator has failed or NCCL has detected an
    /// error. The latter aborts the communicator. Never blocks.
    pub(super) fn check(&self) -> Result<(), CommFailure> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // The other thread's call detects a failure itself, or aborts the communicator: see
            // `is_ending`.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        match self.progress(&state) {
            code if is_error(code) => {
                let message = self.message(code, state.handle);
                Err(self.fail(&mut state, message))
            }
            _ => Ok(()),
        }
    }

    /// Whether an abort of the communicator has begun. Work that was not seen complete before may
    /// be incomplete.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Aborts the communicator because of `failure`. The first cause is kept.
    pub(super) fn abort(&self, failure: CommFailure) {
        let mut state = self.lock();
        self.end(&mut state, failure);
    }

    fn lock(&self) -> MutexGuard<'_, CommState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Result<MutexGuard<'_, CommState>, CommFailure> {
        let state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        self.settings.context.bind()?;
        Ok(state)
    }

    /// Waits until the call that returned `code` is complete. Any failure aborts the communicator.
    fn wait_until_complete(&self, state: &mut CommState, code: Code) -> Result<(), CommFailure> {
        if is_error(code) {
            let message = self.message(code, state.handle);
            return Err(self.fail(state, message));
        }
        // Also after a success, because an asynchronous part may follow.
        let started = Instant::now();
        let limit = started.checked_add(self.settings.timeout);
        let outcome = poll_until(self.settings.wait, limit, || match self.progress(state) {
            SUCCESS => Ok(Some(())),
            IN_PROGRESS => Ok(None),
            code => Err(code),
        });
        match outcome {
            Ok(Some(())) => Ok(()),
            Ok(None) => {
                let failure = CommFailure::TimedOut(started.elapsed());
                self.end(state, failure.clone());
                Err(failure)
            }
            Err(code) => {
                let message = self.message(code, state.handle);
                Err(self.fail(state, message))
            }
        }
    }

    /// Returns the result code of the communicator's current call.
    fn progress(&self, state: &CommState) -> Code {
        // SAFETY: the handle is alive.
        unsafe { self.settings.nccl.progress(state.handle) }
    }

    fn message(&self, code: Code, handle: ncclComm_t) -> String {
        // SAFETY: the handle is null or alive.
        unsafe { self.settings.nccl.describe(code, handle) }
    }

    fn fail(&self, state: &mut CommState, message: String) -> CommFailure {
        let failure = CommFailure::Library(message);
        self.end(state, failure.clone());
        failure
    }

    fn end(&self, state: &mut CommState, failure: CommFailure) {
        let handle = std::mem::replace(&mut state.handle, ptr::null_mut());
        state.failure.get_or_insert(failure);
        if !handle.is_null() {
            self.ending.store(true, Ordering::SeqCst);
            // If binding fails, the abort still frees the host's resources.
            let _ = self.settings.context.bind();
            // SAFETY: the handle was alive, and no other copy of it exists. An error
            // cannot be handled here.
            let _ = unsafe { self.settings.nccl.abort(handle) };
        }
    }

    /// Completes the enqueued work, then destroys the communicator.
    fn finalize(&self, state: &mut CommState) -> Result<(), CommFailure> {
        self.settings.context.bind()?;
        // SAFETY: the handle is alive.
        let code = unsafe { self.settings.nccl.finalize(state.handle) };
        self.wait_until_complete(state, code)?;
        let handle = std::mem::replace(&mut state.handle, ptr::null_mut());
        // SAFETY: the handle is finalized, and no other copy of it exists.
        let _ = unsafe { self.settings.nccl.destroy(handle) };
        Ok(())
    }
}

impl Drop for NcclComm {
    fn drop(&mut self) {
        let mut state = self.lock();
        if state.handle.is_null() {
            return;
        }
        let failure = if thread::panicking() {
            Some(CommFailure::Library("dropped in a panic".to_owned()))
        } else {
            self.finalize(&mut state).err()
        };
        if let Some(failure) = failure {
            self.end(&mut state, failure);
        }
    }
}

/// Memory to which NCCL writes a new handle, possibly from another thread after the call has
/// returned. It is freed only when no such write can follow.
struct HandleSlot(NonNull<ncclComm_t>);

impl HandleSlot {
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(ptr::null_mut()))))
    }

    fn pointer(&self) -> *mut ncclComm_t {
        self.0.as_ptr()
    }

    fn get(&self) -> ncclComm_t {
        // SAFETY: the memory is alive until `free`. The compiler does not know of the thread that
        // writes it.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    fn free(self) {
        // SAFETY: it came from a box, and no thread writes to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

/// Whether a call with this result code has failed.
pub(super) fn is_error(code: Code) -> bool {
    code != SUCCESS && code != IN_PROGRESS
}

fn count(ranks: usize) -> Result<c_int, CommFailure> {
    c_int::try_from(ranks)
        .map_err(|_| CommFailure::Library(format!("{ranks} ranks exceed the maximum of NCCL")))
}

/// Returns `NCCL_CONFIG_INITIALIZER` of NCCL 2.28 with `blocking` off. Unset fields have the
/// smallest integer or null.
fn non_blocking_config() -> ncclConfig_t {
    const UNSET: c_int = c_int::MIN;
    ncclConfig_t {
        size: size_of::<ncclConfig_t>(),
        magic: 0xcafe_beef,
        version: 22_800,
        blocking: 0,
        cgaClusterSize: UNSET,
        minCTAs: UNSET,
        maxCTAs: UNSET,
        netName: ptr::null(),
        splitShare: UNSET,
        trafficClass: UNSET,
        commName: ptr::null(),
        collnetEnable: UNSET,
        CTAPolicy: UNSET,
        shrinkShare: UNSET,
        nvlsCTAs: UNSET,
        nChannelsPerNetPeer: UNSET,
        nvlinkCentricSched: UNSET,
    }
}

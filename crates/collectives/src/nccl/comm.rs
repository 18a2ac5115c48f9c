//! One rank's end of an NCCL communicator.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use cudarc::nccl::sys;

use super::api::{Code, Functions, Handle, IN_PROGRESS, SUCCESS, UniqueId, describe};
use super::cuda::Device;
use super::pause::poll_until;
use crate::WaitStrategy;

/// What a rank gives to [`NcclComm::split`] to be in no new communicator.
pub(super) const NO_COLOR: i32 = -1;

/// Why a communicator cannot be used any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    /// The other ranks did not call within this time.
    TimedOut(Duration),
    /// NCCL's or the driver's message.
    Library(String),
}

/// What all communicators of a rank have in common.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) api: Arc<Functions>,
    pub(super) device: Device,
    /// How long a call may wait for other ranks.
    pub(super) timeout: Duration,
    pub(super) wait: WaitStrategy,
}

/// A communicator that is destroyed exactly once: finalized first when all went well, aborted after a failure or when
/// it is dropped by a panic.
///
/// It does not block in NCCL: calls return at once and are polled, so that a rank that does not come ends in a time-out
/// and an abort. NCCL takes one call at a time, which the lock sees to.
#[derive(Debug)]
pub(super) struct NcclComm {
    settings: Settings,
    state: Mutex<State>,
    /// Set before it is aborted, while the state is locked: from then on kernels may have left without a result.
    ending: AtomicBool,
}

#[derive(Debug)]
struct State {
    /// Null once it is aborted or destroyed.
    handle: Handle,
    /// Why it was aborted.
    failure: Option<Failure>,
}

// SAFETY: NCCL's handles may be used from any thread as long as calls do not overlap, and the state is behind a lock.
unsafe impl Send for State {}

impl NcclComm {
    /// Initialises it with the other `size - 1` ranks that give the same id.
    pub(super) fn init(settings: &Settings, rank: usize, size: usize, id: UniqueId) -> Result<Self, Failure> {
        let (rank, size) = (count(rank)?, count(size)?);
        settings.device.bind().map_err(Failure::Library)?;
        let mut config = non_blocking();
        let slot = Slot::new();
        // SAFETY: `config` is complete and `slot` outlives the call and what goes on behind it.
        let code = unsafe { settings.api.init_rank(slot.pointer(), size, id, rank, &raw mut config) };
        let comm = Self::new(settings, slot.get());
        let mut state = comm.lock();
        if state.handle.is_null() {
            slot.free();
            let words = if is_error(code) {
                comm.words(code, ptr::null_mut())
            } else {
                "the start gave no communicator".to_owned()
            };
            return Err(comm.fail(&mut state, words));
        }
        // On an error the slot stays for ever: what was going on may still write to it.
        comm.settle(&mut state, code)?;
        slot.free();
        drop(state);
        Ok(comm)
    }

    fn new(settings: &Settings, handle: Handle) -> Self {
        let state = Mutex::new(State { handle, failure: None });
        Self { settings: settings.clone(), state, ending: AtomicBool::new(false) }
    }

    /// Divides the communicator; all its ranks call it. `None` for [`NO_COLOR`].
    pub(super) fn split(&self, color: i32, key: i32) -> Result<Option<Self>, Failure> {
        let slot = Slot::new();
        let mut state = self.usable()?;
        // SAFETY: the handle is alive; without a configuration the new communicator has its parent's; `slot` outlives
        // what goes on behind the call.
        let code =
            unsafe { self.settings.api.split(state.handle, color, key, slot.pointer(), ptr::null_mut()) };
        let outcome = self.settle(&mut state, code);
        let child = slot.get();
        let child = (!child.is_null()).then(|| Self::new(&self.settings, child));
        if let Err(failure) = outcome {
            // The slot stays, as in `init`. The child, if it came to be, is aborted like its parent.
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
                child.settle(&mut state, IN_PROGRESS)?;
                drop(state);
                Ok(Some(child))
            }
            (None, _) => Err(Failure::Library("the split gave no communicator".to_owned())),
        }
    }

    /// Makes calls that NCCL takes as one, and returns once their work is in its stream.
    pub(super) fn enqueue(&self, calls: impl FnOnce(&Functions, Handle) -> Code) -> Result<(), Failure> {
        let mut state = self.usable()?;
        let api = &*self.settings.api;
        // SAFETY: every start has its end, on the same thread, whatever the calls give.
        let code = unsafe {
            let started = api.group_start();
            if started == SUCCESS {
                let called = calls(api, state.handle);
                let ended = api.group_end();
                if is_error(called) { called } else { ended }
            } else {
                started
            }
        };
        self.settle(&mut state, code)
    }

    /// Whether NCCL has noticed a failure since, which aborts the communicator. Never blocks.
    pub(super) fn check(&self) -> Result<(), Failure> {
        let mut state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            // Another thread is in a call, which notices itself, or ends the communicator: see `is_ending`.
            Err(TryLockError::WouldBlock) => return Ok(()),
        };
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        match self.progress(state.handle) {
            code if is_error(code) => {
                let words = self.words(code, state.handle);
                Err(self.fail(&mut state, words))
            }
            _ => Ok(()),
        }
    }

    /// Whether it was aborted, or is about to be: whatever was not found done before may be left half done.
    pub(super) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Ends the communicator at once: its kernels leave the device. The first reason is kept.
    pub(super) fn abort(&self, failure: Failure) {
        let mut state = self.lock();
        self.end(&mut state, failure);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn usable(&self) -> Result<MutexGuard<'_, State>, Failure> {
        let state = self.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        self.settings.device.bind().map_err(Failure::Library)?;
        Ok(state)
    }

    /// Waits until the call that gave `code` is complete. Any failure aborts the communicator.
    fn settle(&self, state: &mut State, code: Code) -> Result<(), Failure> {
        if is_error(code) {
            let words = self.words(code, state.handle);
            return Err(self.fail(state, words));
        }
        // Also after a success: what is not polled may go on behind it.
        let started = Instant::now();
        let limit = started.checked_add(self.settings.timeout);
        let settled = poll_until(self.settings.wait, limit, || match self.progress(state.handle) {
            SUCCESS => Ok(Some(())),
            IN_PROGRESS => Ok(None),
            code => Err(code),
        });
        match settled {
            Ok(Some(())) => Ok(()),
            Ok(None) => {
                let failure = Failure::TimedOut(started.elapsed());
                self.end(state, failure.clone());
                Err(failure)
            }
            Err(code) => {
                let words = self.words(code, state.handle);
                Err(self.fail(state, words))
            }
        }
    }

    /// What the communicator is doing: a result code.
    fn progress(&self, handle: Handle) -> Code {
        let mut state = SUCCESS;
        // SAFETY: the handle is alive, and `state` is written.
        let code = unsafe { self.settings.api.async_error(handle, &raw mut state) };
        if is_error(code) { code } else { state }
    }

    fn words(&self, code: Code, handle: Handle) -> String {
        // SAFETY: the handle is null or alive.
        unsafe { describe(&self.settings.api, code, handle) }
    }

    fn fail(&self, state: &mut State, message: String) -> Failure {
        let failure = Failure::Library(message);
        self.end(state, failure.clone());
        failure
    }

    fn end(&self, state: &mut State, failure: Failure) {
        let handle = std::mem::replace(&mut state.handle, ptr::null_mut());
        state.failure.get_or_insert(failure);
        if !handle.is_null() {
            self.ending.store(true, Ordering::SeqCst);
            // Without the device the abort still frees what the host has.
            let _ = self.settings.device.bind();
            // SAFETY: the handle was alive, and no other copy of it exists. There is nothing left to do about an error.
            let _ = unsafe { self.settings.api.abort(handle) };
        }
    }

    /// Completes the enqueued work, then destroys the communicator.
    fn finalize(&self, state: &mut State) -> Result<(), Failure> {
        self.settings.device.bind().map_err(Failure::Library)?;
        // SAFETY: the handle is alive.
        let code = unsafe { self.settings.api.finalize(state.handle) };
        self.settle(state, code)?;
        let handle = std::mem::replace(&mut state.handle, ptr::null_mut());
        // SAFETY: the handle is finalized, and no other copy of it exists.
        let _ = unsafe { self.settings.api.destroy(handle) };
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
            Some(Failure::Library("dropped in a panic".to_owned()))
        } else {
            self.finalize(&mut state).err()
        };
        if let Some(failure) = failure {
            self.end(&mut state, failure);
        }
    }
}

/// Where NCCL writes a new handle, perhaps from a thread of its own and after the call has returned: freed only when
/// that is known to be over.
struct Slot(NonNull<Handle>);

impl Slot {
    fn new() -> Self {
        Self(NonNull::from(Box::leak(Box::new(ptr::null_mut()))))
    }

    fn pointer(&self) -> *mut Handle {
        self.0.as_ptr()
    }

    fn get(&self) -> Handle {
        // SAFETY: the memory is alive until `free`. The writer is another thread that is not known to the compiler.
        unsafe { self.0.as_ptr().read_volatile() }
    }

    fn free(self) {
        // SAFETY: it came from a box, and nobody writes to it any more.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

fn is_error(code: Code) -> bool {
    code != SUCCESS && code != IN_PROGRESS
}

fn count(ranks: usize) -> Result<c_int, Failure> {
    c_int::try_from(ranks)
        .map_err(|_| Failure::Library(format!("{ranks} ranks are more than NCCL can count")))
}

/// `NCCL_CONFIG_INITIALIZER` of NCCL 2.28 with `blocking` off: what is not set is the smallest integer or null.
fn non_blocking() -> sys::ncclConfig_t {
    const UNSET: c_int = c_int::MIN;
    sys::ncclConfig_t {
        size: size_of::<sys::ncclConfig_t>(),
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

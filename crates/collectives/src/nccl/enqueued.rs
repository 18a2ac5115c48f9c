//! Operations that are enqueued on a device. A failed group is *diagnosed*: its ranks find out
//! which of them is missing.

use std::any::Any;
use std::mem;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use cuda::{Event, Stream};

use super::comm::CommFailure;
use super::group::{NcclGroup, NcclWorldState, OperationId};
use super::polling::poll_until;
use crate::{Call, Error, Result};

/// Time after which a rank announces to the others that it has started an operation, in case the
/// operation fails. A quarter of the time-out if that is shorter, so that it usually precedes the
/// first time-out.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// A rank: its state, and its operations on the device.
#[derive(Debug)]
pub(super) struct NcclRank {
    /// Operations that may be incomplete. The list holds them weakly: an operation whose request is
    /// dropped leaves the list when the device is done with it.
    pending: Mutex<Vec<Weak<EnqueuedOperation>>>,
    abandoned: Mutex<AbandonedMemory>,
    state: NcclWorldState,
}

impl NcclRank {
    /// Creates a rank without operations.
    pub(super) fn new(state: NcclWorldState) -> Self {
        Self { pending: Mutex::default(), abandoned: Mutex::default(), state }
    }

    /// Adds an operation to those that may be incomplete.
    pub(super) fn add_pending(&self, operation: &Arc<EnqueuedOperation>) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|operation| operation.strong_count() > 0);
        pending.push(Arc::downgrade(operation));
    }

    /// Waits until the pending operations for which `is_awaited` returns `true` are complete. Each
    /// ends at its time-out at the latest.
    ///
    /// # Errors
    /// The first error that was not returned to a caller yet.
    pub(super) fn wait_for_pending(&self, is_awaited: impl Fn(&EnqueuedOperation) -> bool) -> Result<()> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let operations: Vec<_> = pending.iter().filter_map(Weak::upgrade).collect();
        drop(pending);
        for operation in operations.iter().filter(|operation| is_awaited(operation)) {
            if !operation.is_reported() {
                poll_until(self.settings.wait, None, || Ok(operation.poll()?.then_some(())))?;
            }
        }
        Ok(())
    }

    /// Waits for all work in a stream. A failed operation ends the wait.
    ///
    /// # Errors
    /// The error of an operation in the stream, unless it was returned to a caller;
    /// [`Error::Cuda`] if other work failed.
    pub(super) fn synchronize(&self, stream: &Stream) -> Result<()> {
        self.wait_for_pending(|operation| operation.is_in(stream))?;
        stream.synchronize().map_err(Error::in_cuda("finish its work"))
    }

    /// Waits for all work in a stream, also after operations in it have failed, of which each ends
    /// a wait of [`synchronize`](Self::synchronize) once.
    ///
    /// # Errors
    /// The last error, if the stream still has work or cannot be waited for.
    pub(super) fn drain(&self, stream: &Stream) -> Result<()> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner).len();
        let mut drained = self.synchronize(stream);
        for _ in 0..pending {
            if drained.is_ok() {
                break;
            }
            drained = self.synchronize(stream);
        }
        drained
    }

    /// Locks the memory of dropped requests, to which the device may still write.
    pub(super) fn abandoned(&self) -> MutexGuard<'_, AbandonedMemory> {
        self.abandoned.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees the memory of dropped requests, unless an operation is incomplete. Freeing may wait
    /// for the device, which would wait for the missing rank of such an operation.
    pub(super) fn free_abandoned(&self) {
        if self.abandoned().0.is_empty() {
            return;
        }
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let is_idle = pending.iter().filter_map(Weak::upgrade).all(|operation| operation.is_done());
        drop(pending);
        if is_idle {
            let done = self.abandoned().take_if_done();
            drop(done);
        }
    }
}

impl Deref for NcclRank {
    type Target = NcclWorldState;

    fn deref(&self) -> &NcclWorldState {
        &self.state
    }
}

/// Operation enqueued in a stream. It keeps neither its group nor its world alive. If they have
/// been dropped, it only queries the event.
#[derive(Debug)]
pub(super) struct EnqueuedOperation {
    world: Weak<NcclRank>,
    group: Weak<NcclGroup>,
    stream: Stream,
    call: Call,
    operation_id: OperationId,
    started: Instant,
    /// Recorded after the work.
    event: Event,
    /// Whether the other ranks were told that this rank has started it.
    announced: AtomicBool,
    /// Whether its error was returned to a caller.
    reported: AtomicBool,
}

impl EnqueuedOperation {
    /// Creates the record of an operation of `group` whose work was enqueued in `stream` from
    /// `started` until now, and marks its end there.
    ///
    /// # Errors
    /// CUDA errors.
    pub(super) fn record(
        (world, group): (&Arc<NcclRank>, &Arc<NcclGroup>),
        stream: &Stream,
        call: Call,
        operation_id: OperationId,
        started: Instant,
    ) -> cuda::Result<Arc<Self>> {
        let event = Event::untimed(stream)?;
        stream.record(&event)?;
        Ok(Arc::new(Self {
            world: Arc::downgrade(world),
            group: Arc::downgrade(group),
            stream: stream.clone(),
            call,
            operation_id,
            started,
            event,
            announced: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }))
    }

    /// Whether the operation is in this stream.
    pub(super) fn is_in(&self, stream: &Stream) -> bool {
        self.stream == *stream
    }

    /// Whether it is an operation of this group.
    pub(super) fn is_of(&self, group: &Arc<NcclGroup>) -> bool {
        Weak::ptr_eq(&self.group, &Arc::downgrade(group))
    }

    /// Whether the device has completed or aborted the operation. `false` after a failed query.
    fn is_done(&self) -> bool {
        matches!(self.event.is_complete_beside_captures(), Ok(true))
    }

    /// Whether the error of the operation was returned to a caller.
    pub(super) fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }

    /// Returns whether the operation is complete, or its error. Does not wait for the device. An
    /// error or a time-out fails the operation's group.
    pub(super) fn poll(&self) -> Result<bool> {
        let polled = self.progress();
        if polled.is_err() {
            self.reported.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn progress(&self) -> Result<bool> {
        // The group is dropped before its world, which it needs until the end.
        let world = self.world.upgrade();
        let group = self.group.upgrade();
        // Other threads may be capturing streams.
        let is_complete = || self.event.is_complete_beside_captures();
        let (Some(world), Some(group)) = (&world, &group) else {
            return is_complete().map_err(Error::in_cuda("finish its work"));
        };
        if !group.is_healthy()? {
            return Ok(false);
        }
        let progress = group.comm.check().and_then(|()| Ok(is_complete()?));
        let waited = self.started.elapsed();
        let timeout = world.settings.timeout;
        let failure = match progress {
            // The event of an aborted operation completes, too. The cause of the abort will be
            // known soon.
            Ok(_) if group.comm.is_ending() => return Ok(false),
            Ok(true) => return Ok(true),
            Ok(false) if waited < timeout => {
                if waited >= ANNOUNCE_AFTER.min(timeout / 4) {
                    self.announce(world, group);
                }
                return Ok(false);
            }
            Ok(false) => CommFailure::TimedOut(waited),
            Err(failure) => failure,
        };
        // `None` while another thread diagnoses the failure.
        group.try_fail(world, &failure, &self.call, &self.operation_id).map_or(Ok(false), Err)
    }

    fn announce(&self, world: &NcclWorldState, group: &NcclGroup) {
        if let OperationId::Collective(sequence) = self.operation_id {
            if !self.announced.load(Ordering::Relaxed) && group.announce(world, sequence) {
                self.announced.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Memory of dropped requests, to which the device may still write.
#[derive(Debug, Default)]
pub(super) struct AbandonedMemory(Vec<AbandonedOperation>);

/// Operation of a dropped request, and its memory.
type AbandonedOperation = (Arc<EnqueuedOperation>, Box<dyn Any + Send>);

impl AbandonedMemory {
    /// Keeps `memory` until the device is done with `operation`.
    pub(super) fn keep(&mut self, operation: Arc<EnqueuedOperation>, memory: impl Any + Send) {
        self.0.push((operation, Box::new(memory)));
    }

    /// Returns the memory, if the device has completed or aborted all operations that used it.
    fn take_if_done(&mut self) -> Vec<AbandonedOperation> {
        if self.0.iter().all(|(operation, _)| operation.is_done()) {
            mem::take(&mut self.0)
        } else {
            Vec::new()
        }
    }
}

impl Drop for AbandonedMemory {
    fn drop(&mut self) {
        // A failed query says nothing about the operation, so the rest is queried a second time.
        for _ in 0..2 {
            self.0.retain(|(operation, _)| !operation.is_done());
        }
        // A leak is better than a write of the device to memory that was allocated again.
        mem::forget(mem::take(&mut self.0));
    }
}

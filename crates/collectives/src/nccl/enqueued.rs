//! Operations that are enqueued on a device. A failed group is *diagnosed*: its ranks find out
//! which of them is missing.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::comm::CommFailure;
use super::cuda::StreamEvent;
use super::group::{NcclGroup, NcclWorldState, OperationId};
use super::pending_operations::DeviceOperation;
use crate::{Call, Error, Result};

/// Time after which a rank announces to the others that it has started an operation, in case the
/// operation fails. A quarter of the time-out if that is shorter, so that it usually precedes the
/// first time-out.
const ANNOUNCE_AFTER: Duration = Duration::from_secs(1);

/// Operation enqueued in a stream. It keeps neither its group nor its world alive. If they have
/// been dropped, it only queries the event.
#[derive(Debug)]
pub(super) struct EnqueuedOperation {
    world: Weak<NcclWorldState>,
    group: Weak<NcclGroup>,
    call: Call,
    operation_id: OperationId,
    started: Instant,
    /// Recorded after the work.
    event: StreamEvent,
    /// Whether the other ranks were told that this rank has started it.
    announced: AtomicBool,
    /// Whether its error was returned to a caller.
    reported: AtomicBool,
}

impl EnqueuedOperation {
    /// Creates the record of an operation of `group` that was enqueued at `started`. `event` was
    /// recorded after its work.
    pub(super) fn new(
        (world, group): (&Arc<NcclWorldState>, &Arc<NcclGroup>),
        call: Call,
        operation_id: OperationId,
        started: Instant,
        event: StreamEvent,
    ) -> Self {
        Self {
            world: Arc::downgrade(world),
            group: Arc::downgrade(group),
            call,
            operation_id,
            started,
            event,
            announced: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    fn progress(&self) -> Result<bool> {
        // The group is dropped before its world, which it needs until the end.
        let world = self.world.upgrade();
        let group = self.group.upgrade();
        let (Some(world), Some(group)) = (&world, &group) else {
            let failed = |message| Error::Device { action: "finish its work".to_owned(), message };
            return self.event.is_complete().map_err(failed);
        };
        if !group.is_healthy()? {
            return Ok(false);
        }
        let progress =
            group.comm.check().and_then(|()| self.event.is_complete().map_err(CommFailure::Library));
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

impl DeviceOperation for EnqueuedOperation {
    /// An error or a time-out fails the operation's group.
    fn poll(&self) -> Result<bool> {
        let polled = self.progress();
        if polled.is_err() {
            self.reported.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn is_done(&self) -> bool {
        matches!(self.event.is_complete(), Ok(true))
    }

    fn is_reported(&self) -> bool {
        self.reported.load(Ordering::Relaxed)
    }
}

//! Operations that are enqueued on the device.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::comm::Failure;
use super::cuda::StreamEvent;
use super::group::{GroupState, Ticket, World};
use super::pause::poll_until;
use crate::{Call, Error, Result, WaitStrategy};

/// When an operation is slow, its rank announces that it has started it, in case it fails: most often long before the
/// first rank's time-out. At most this, or a quarter of the time-out.
const SLOW: Duration = Duration::from_secs(1);

/// Work in a stream. It keeps nothing alive: when its group has ended, so has the work.
#[derive(Debug)]
pub(super) struct Enqueued {
    world: Weak<World>,
    group: Weak<GroupState>,
    call: Call,
    ticket: Ticket,
    started: Instant,
    /// Recorded behind the work.
    event: StreamEvent,
    /// The others have been sent that this rank has started it.
    announced: AtomicBool,
    /// Its failure has been returned to a caller.
    reported: AtomicBool,
}

impl Enqueued {
    pub(super) fn new(
        (world, group): (&Arc<World>, &Arc<GroupState>),
        call: Call,
        ticket: Ticket,
        started: Instant,
        event: StreamEvent,
    ) -> Self {
        Self {
            world: Arc::downgrade(world),
            group: Arc::downgrade(group),
            call,
            ticket,
            started,
            event,
            announced: AtomicBool::new(false),
            reported: AtomicBool::new(false),
        }
    }

    /// Whether the device has completed or aborted it.
    pub(super) fn has_passed(&self) -> bool {
        matches!(self.event.is_complete(), Ok(true))
    }

    /// Whether it is complete. An error or a time-out fails its group.
    pub(super) fn poll(&self) -> Result<bool> {
        let polled = self.progress();
        if polled.is_err() {
            self.reported.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn progress(&self) -> Result<bool> {
        // Dropped in the other order: the group needs its world to the end.
        let world = self.world.upgrade();
        let group = self.group.upgrade();
        let (Some(world), Some(group)) = (&world, &group) else {
            let failed = |message| Error::Device { action: "finish its work".to_owned(), message };
            return self.event.is_complete().map_err(failed);
        };
        if !group.is_healthy()? {
            return Ok(false);
        }
        let progress = group.comm.check().and_then(|()| self.event.is_complete().map_err(Failure::Library));
        let waited = self.started.elapsed();
        let timeout = world.settings.timeout;
        let failure = match progress {
            // The event of an aborted operation completes too. Why it was aborted is known soon.
            Ok(_) if group.comm.is_ending() => return Ok(false),
            Ok(true) => return Ok(true),
            Ok(false) if waited < timeout => {
                if waited >= SLOW.min(timeout / 4) {
                    self.announce(world, group);
                }
                return Ok(false);
            }
            Ok(false) => Failure::TimedOut(waited),
            Err(failure) => failure,
        };
        // Nothing yet while another thread is diagnosing it.
        group.try_fail(world, &failure, &self.call, &self.ticket).map_or(Ok(false), Err)
    }

    fn announce(&self, world: &World, group: &GroupState) {
        if let Ticket::Collective(sequence) = self.ticket {
            if !self.announced.load(Ordering::Relaxed) && group.announce(world, sequence) {
                self.announced.store(true, Ordering::Relaxed);
            }
        }
    }
}

/// Operations that may not be complete yet.
#[derive(Debug, Default)]
pub(super) struct PendingOperations(Mutex<Vec<Weak<Enqueued>>>);

impl PendingOperations {
    pub(super) fn add(&self, operation: &Arc<Enqueued>) {
        let mut list = self.lock();
        list.retain(|operation| operation.strong_count() > 0);
        list.push(Arc::downgrade(operation));
    }

    /// Waits until all are done, at most their time-outs.
    ///
    /// # Errors
    /// The first failure that no caller has been given yet.
    pub(super) fn wait(&self, strategy: WaitStrategy) -> Result<()> {
        let operations: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let unreported = operations.iter().filter(|operation| !operation.reported.load(Ordering::Relaxed));
        for operation in unreported {
            poll_until(strategy, None, || Ok(operation.poll()?.then_some(())))?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Enqueued>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Operations on the device, whoever waits for them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::comm::Failure;
use super::device::Mark;
use super::group::{GroupState, Ticket, World};
use super::pause::poll_until;
use crate::{Call, Error, Result, WaitStrategy};

/// When an operation is slow, its rank says that it has come to it, for the case that it fails: as often as not long
/// before the first rank's time-out. At most this, or a quarter of the time-out.
const SLOW: Duration = Duration::from_secs(1);

/// Work in a stream. It keeps nothing alive: when its group has ended, so has the work.
#[derive(Debug)]
pub(super) struct Enqueued {
    world: Weak<World>,
    group: Weak<GroupState>,
    call: Call,
    ticket: Ticket,
    started: Instant,
    /// Behind the work.
    mark: Box<dyn Mark>,
    /// The others can know that this rank has come.
    announced: AtomicBool,
    /// Somebody was told that it failed.
    told: AtomicBool,
}

impl Enqueued {
    pub(super) fn new(
        (world, group): (&Arc<World>, &Arc<GroupState>),
        call: Call,
        ticket: Ticket,
        started: Instant,
        mark: Box<dyn Mark>,
    ) -> Self {
        Self {
            world: Arc::downgrade(world),
            group: Arc::downgrade(group),
            call,
            ticket,
            started,
            mark,
            announced: AtomicBool::new(false),
            told: AtomicBool::new(false),
        }
    }

    /// Whether the device is done with it, after whatever end.
    pub(super) fn has_passed(&self) -> bool {
        matches!(self.mark.reached(), Ok(true))
    }

    /// Whether it is done. What goes wrong, or takes too long, is the end of its group.
    pub(super) fn poll(&self) -> Result<bool> {
        let polled = self.progress();
        if polled.is_err() {
            self.told.store(true, Ordering::Relaxed);
        }
        polled
    }

    fn progress(&self) -> Result<bool> {
        // Dropped in the other order: the group needs its world to the end.
        let world = self.world.upgrade();
        let group = self.group.upgrade();
        let (Some(world), Some(group)) = (&world, &group) else {
            let failed = |message| Error::Device { action: "finish its work".to_owned(), message };
            return self.mark.reached().map_err(failed);
        };
        if !group.is_sound()? {
            return Ok(false);
        }
        let progress = group.comm.check().and_then(|()| self.mark.reached().map_err(Failure::Library));
        let waited = self.started.elapsed();
        let timeout = world.settings.timeout;
        let failure = match progress {
            // An aborted operation passes its mark too. Why it was aborted is known soon.
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
        // Nothing yet if another thread is finding out.
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

/// Operations that may not be done yet.
#[derive(Debug, Default)]
pub(super) struct Underway(Mutex<Vec<Weak<Enqueued>>>);

impl Underway {
    pub(super) fn add(&self, operation: &Arc<Enqueued>) {
        let mut list = self.lock();
        list.retain(|operation| operation.strong_count() > 0);
        list.push(Arc::downgrade(operation));
    }

    /// Waits until all are done, at most their time-outs.
    ///
    /// # Errors
    /// The first failure that nobody was told yet.
    pub(super) fn wait(&self, strategy: WaitStrategy) -> Result<()> {
        let operations: Vec<_> = self.lock().iter().filter_map(Weak::upgrade).collect();
        let untold = operations.iter().filter(|operation| !operation.told.load(Ordering::Relaxed));
        for operation in untold {
            poll_until(strategy, None, || Ok(operation.poll()?.then_some(())))?;
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Enqueued>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

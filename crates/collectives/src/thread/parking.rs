//! How a rank waits for the others.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use crate::{Result, WaitStrategy};

/// Polls before a parking rank sleeps: about the time that a sleep and a wake-up take themselves.
const POLLS_BEFORE_SLEEP: u32 = 200;

/// How far a poll got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// The operation is done.
    Complete,
    /// A piece of work was done: there may be more.
    Advanced,
    /// Nothing to do until something happens elsewhere.
    Blocked,
}

/// Where ranks wait, and where they learn that something happened: an event count.
#[derive(Debug)]
pub(super) struct Parking {
    strategy: WaitStrategy,
    events: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Parking {
    pub(super) fn new(strategy: WaitStrategy) -> Self {
        Self {
            strategy,
            events: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Tells all that wait to poll again. Called after the event is visible to them.
    pub(super) fn notify(&self) {
        // Sequentially consistent with `sleep`: either this sees the sleeper, or the sleeper sees this event.
        self.events.fetch_add(1, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_all();
        }
    }

    /// Polls until the operation is complete or `limit` has passed; whether it is complete. A sleeping rank also polls
    /// at `alarm`, which is when the operation itself gives up.
    pub(super) fn wait(
        &self,
        limit: Option<Instant>,
        alarm: Option<Instant>,
        mut poll: impl FnMut(Instant) -> Result<Progress>,
    ) -> Result<bool> {
        let wake_at = limit.into_iter().chain(alarm).min();
        let mut blocked = 0;
        loop {
            let now = Instant::now();
            match poll(now)? {
                Progress::Complete => return Ok(true),
                Progress::Advanced => {
                    blocked = 0;
                    continue;
                }
                Progress::Blocked if limit.is_some_and(|limit| now >= limit) => return Ok(false),
                Progress::Blocked => blocked += 1,
            }
            match self.strategy {
                WaitStrategy::Spin => std::hint::spin_loop(),
                WaitStrategy::Park if blocked > POLLS_BEFORE_SLEEP => self.sleep(wake_at, &mut poll)?,
                WaitStrategy::Yield | WaitStrategy::Park => std::thread::yield_now(),
            }
        }
    }

    /// Sleeps until the next event or until `wake_at`, unless a last poll finds something to do.
    fn sleep(
        &self,
        wake_at: Option<Instant>,
        poll: &mut impl FnMut(Instant) -> Result<Progress>,
    ) -> Result<()> {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let seen = self.events.load(Ordering::SeqCst);
        let last_look = poll(Instant::now());
        if matches!(last_look, Ok(Progress::Blocked)) {
            let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            while self.events.load(Ordering::SeqCst) == seen {
                guard = match wake_at.map(|at| at.saturating_duration_since(Instant::now())) {
                    None => self.woken.wait(guard).unwrap_or_else(PoisonError::into_inner),
                    Some(left) if left.is_zero() => break,
                    Some(left) => {
                        self.woken.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
        last_look.map(|_| ())
    }
}

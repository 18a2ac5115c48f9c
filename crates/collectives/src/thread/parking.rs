//! How a rank waits for the others.

use std::sync::PoisonError;
use std::time::Instant;

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, spin_loop, yield_now};
use crate::{Result, WaitStrategy};

/// Polls before a parking rank sleeps: about the time that a sleep and a wake-up take themselves.
const POLLS_BEFORE_SLEEP: u32 = if cfg!(loom) { 0 } else { 200 };

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
    pub(super) fn new(strategy: WaitStrategy, ranks: usize) -> Self {
        Self {
            strategy: strategy.among(ranks),
            events: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Wakes all that wait, to poll again. Called after the event is visible to them.
    pub(super) fn notify(&self) {
        self.events.fetch_add(1, Ordering::Release);
        // With the fence in `sleep`: either this sees the sleeper, or the sleeper sees this event.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
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
        let mut blocked = 0;
        loop {
            let now = Instant::now();
            match poll(now)? {
                Progress::Complete => return Ok(true),
                Progress::Advanced if limit.is_none_or(|limit| now < limit) => {
                    blocked = 0;
                    continue;
                }
                Progress::Advanced => return Ok(false),
                Progress::Blocked if limit.is_some_and(|limit| now >= limit) => return Ok(false),
                Progress::Blocked => blocked += 1,
            }
            match self.strategy {
                WaitStrategy::Spin => spin_loop(),
                WaitStrategy::Park if blocked > POLLS_BEFORE_SLEEP => {
                    // An alarm that is over has had its effect in the poll above.
                    let alarm = alarm.filter(|&alarm| alarm > now);
                    self.sleep(limit.into_iter().chain(alarm).min(), &mut poll)?;
                }
                WaitStrategy::Yield | WaitStrategy::Park => yield_now(),
            }
        }
    }

    /// Sleeps until the next event or until `wake_at`, unless a last poll finds something to do.
    fn sleep(
        &self,
        wake_at: Option<Instant>,
        poll: &mut impl FnMut(Instant) -> Result<Progress>,
    ) -> Result<()> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = self.events.load(Ordering::Acquire);
        let last_look = poll(Instant::now());
        if matches!(last_look, Ok(Progress::Blocked)) {
            let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
            while self.events.load(Ordering::Acquire) == seen {
                guard = match wake_at.map(|at| at.saturating_duration_since(Instant::now())) {
                    None => self.woken.wait(guard).unwrap_or_else(PoisonError::into_inner),
                    Some(left) if left.is_zero() => break,
                    Some(left) => {
                        self.woken.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0
                    }
                };
            }
        }
        self.sleepers.fetch_sub(1, Ordering::Relaxed);
        last_look.map(|_| ())
    }
}

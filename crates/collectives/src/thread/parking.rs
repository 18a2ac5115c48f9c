//! Waiting for other ranks. An *event* is a change for which a rank may wait: an operation becomes
//! ready, fails or completes, or a rank ends.

use std::sync::PoisonError;
use std::time::Instant;

use super::sync::{AtomicU64, AtomicUsize, Condvar, Mutex, Ordering, fence, spin_loop, yield_now};
use crate::{Result, WaitStrategy};

/// Number of polls before a parking rank sleeps. They take about the time of a sleep and a wake-up.
const POLLS_BEFORE_SLEEP: u32 = if cfg!(loom) { 0 } else { 200 };

/// Result of a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollProgress {
    /// All work of the operation is done.
    Complete,
    /// A unit of the operation's work was executed. There may be more.
    Advanced,
    /// This rank can do nothing until the next event.
    Blocked,
}

/// Count of events, on whose change the ranks of a world wait.
#[derive(Debug)]
pub(super) struct Parking {
    strategy: WaitStrategy,
    events: AtomicU64,
    sleepers: AtomicUsize,
    lock: Mutex<()>,
    woken: Condvar,
}

impl Parking {
    /// Creates the event count of a world of `ranks` ranks on this host.
    pub(super) fn new(strategy: WaitStrategy, ranks: usize) -> Self {
        Self {
            strategy: strategy.for_ranks(ranks),
            events: AtomicU64::new(0),
            sleepers: AtomicUsize::new(0),
            lock: Mutex::new(()),
            woken: Condvar::new(),
        }
    }

    /// Wakes all waiting ranks, which poll again. Must be called after the event is visible to
    /// them.
    pub(super) fn notify(&self) {
        self.events.fetch_add(1, Ordering::Release);
        // With the fence in `sleep`: either this call sees the sleeper, or the sleeper sees this
        // event.
        fence(Ordering::SeqCst);
        if self.sleepers.load(Ordering::Relaxed) > 0 {
            drop(self.lock.lock().unwrap_or_else(PoisonError::into_inner));
            self.woken.notify_all();
        }
    }

    /// Polls until the operation is complete or `limit` has passed, and returns whether it is
    /// complete. A sleeping rank also polls at `alarm`, the time-out of the operation. `None` means
    /// no limit, or no time-out. `poll` is given the current time.
    ///
    /// # Errors
    /// The error of `poll`.
    pub(super) fn wait(
        &self,
        limit: Option<Instant>,
        alarm: Option<Instant>,
        mut poll: impl FnMut(Instant) -> Result<PollProgress>,
    ) -> Result<bool> {
        let mut blocked = 0;
        loop {
            let now = Instant::now();
            match poll(now)? {
                PollProgress::Complete => return Ok(true),
                PollProgress::Advanced if limit.is_none_or(|limit| now < limit) => {
                    blocked = 0;
                    continue;
                }
                PollProgress::Advanced => return Ok(false),
                PollProgress::Blocked if limit.is_some_and(|limit| now >= limit) => return Ok(false),
                PollProgress::Blocked => blocked += 1,
            }
            match self.strategy {
                WaitStrategy::Spin => spin_loop(),
                WaitStrategy::Park if blocked > POLLS_BEFORE_SLEEP => {
                    // An alarm that has passed took effect in the poll above.
                    let alarm = alarm.filter(|&alarm| alarm > now);
                    self.sleep(limit.into_iter().chain(alarm).min(), &mut poll)?;
                }
                WaitStrategy::Yield | WaitStrategy::Park => yield_now(),
            }
        }
    }

    /// Sleeps until the next event or until `wake_at`, unless a last poll makes progress.
    fn sleep(
        &self,
        wake_at: Option<Instant>,
        poll: &mut impl FnMut(Instant) -> Result<PollProgress>,
    ) -> Result<()> {
        self.sleepers.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let seen = self.events.load(Ordering::Acquire);
        let last_look = poll(Instant::now());
        if matches!(last_look, Ok(PollProgress::Blocked)) {
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

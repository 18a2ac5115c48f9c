//! Waiting of a worker, the thread on which a [`CpuDriver`](crate::CpuDriver) runs its jobs.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Wake;
use std::thread;
use std::time::{Duration, Instant};

/// Behaviour of a worker while no job has anything to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// Polls continuously: the lowest latency, and it occupies a whole core.
    Spin,
    /// Polls at increasing intervals for a few microseconds, then yields the core to other threads
    /// between polls. Suitable when several workers share few cores.
    #[default]
    Yield,
    /// Sleeps for this time between polls: little use of the core, high latency.
    Sleep(Duration),
    /// Sleeps until it is woken: no use of the core. Code that gives a job something to do must
    /// call the driver's [`waker`](crate::CpuDriver::waker) afterwards; otherwise the worker sleeps
    /// indefinitely. While a job is [`Communicating`](crate::JobState::Communicating), which
    /// progresses only when polled, the worker waits like [`Yield`](Self::Yield).
    Park,
}

/// Number of polls without a result before [`Idle::Yield`] starts to yield. Between them it
/// executes 1, 2, 4, ... spin hints.
const SPINS: u32 = 6;

/// State of a worker that waits: the number of polls without a result since it last had work.
#[derive(Debug)]
pub(crate) struct Wait {
    idle: Idle,
    polls: u32,
}

impl Wait {
    /// Creates the state of a worker that begins to wait as `idle` says.
    pub(crate) fn new(idle: Idle) -> Self {
        Self { idle, polls: 0 }
    }

    /// Records that there was work, so that the next wait begins with spinning again.
    pub(crate) fn reset(&mut self) {
        self.polls = 0;
    }

    /// Waits once, before the next poll of the jobs. `limit` is the maximum duration of a sleep,
    /// `None` for no limit. `seen` is the signal's count before the jobs were polled: a parked
    /// worker does not sleep if it has changed. `communicates` is whether a job progresses only
    /// when polled.
    pub(crate) fn wait(
        &mut self,
        limit: Option<Duration>,
        communicates: bool,
        signal: &WakeSignal,
        seen: u64,
    ) {
        let idle = if communicates && self.idle == Idle::Park { Idle::Yield } else { self.idle };
        match idle {
            Idle::Spin => hint::spin_loop(),
            Idle::Yield if self.polls < SPINS => (0..1u32 << self.polls).for_each(|_| hint::spin_loop()),
            Idle::Yield => thread::yield_now(),
            Idle::Sleep(time) => thread::sleep(limit.map_or(time, |limit| limit.min(time))),
            Idle::Park => signal.wait(seen, limit),
        }
        self.polls = self.polls.saturating_add(1);
    }
}

/// Signal that wakes a parked worker from any thread.
#[derive(Debug, Default)]
pub(crate) struct WakeSignal {
    count: AtomicU64,
    /// Held while the signal is raised, and from reading `count` until the following sleep begins.
    sleep: Mutex<()>,
    raised: Condvar,
}

impl WakeSignal {
    /// Returns the number of times the signal has been raised.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Acquire)
    }

    /// Raises the signal, which wakes a parked worker or prevents its next sleep.
    pub(crate) fn notify(&self) {
        let sleep = self.lock();
        self.count.fetch_add(1, Ordering::Release);
        drop(sleep);
        self.raised.notify_all();
    }

    /// Sleeps until the signal's count differs from `seen`, at most for `limit`.
    fn wait(&self, seen: u64, limit: Option<Duration>) {
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        let mut sleep = self.lock();
        while self.count() == seen {
            sleep = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return,
                Some(left) => self.raised.wait_timeout(sleep, left).unwrap_or_else(PoisonError::into_inner).0,
                None => self.raised.wait(sleep).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Locks the mutex. It guards no data that a panic could leave inconsistent.
    fn lock(&self) -> MutexGuard<'_, ()> {
        self.sleep.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for WakeSignal {
    fn wake(self: Arc<Self>) {
        self.notify();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.notify();
    }
}

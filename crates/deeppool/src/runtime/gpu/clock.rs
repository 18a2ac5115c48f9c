//! The virtual time of emulated GPUs: those of the emulated CUDA driver, on which the duration of a
//! kernel is set by a model. A *run* is one execution of iterations by the drivers of all ranks.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda::emulated::EmulatedClock;
use gpu_mux::cuda::HostClock;

/// Virtual time that passes when a thread yields, unless a kernel or collective ends before.
const MAX_YIELD: Duration = Duration::from_micros(100);

/// Maximum real time for which ranks wait for each other before they continue.
const RANK_TIMEOUT: Duration = Duration::from_secs(60);

/// The virtual time that the threads of all ranks share. Each drives an emulated GPU.
///
/// While all of them are in a run, time passes only when all of them wait for their devices, to the
/// next end of a kernel or a collective. So measurements do not depend on the speed of the threads,
/// and the host takes no time.
struct SharedClock {
    clock: EmulatedClock,
    ranks: Mutex<Vec<ThreadState>>,
    changed: Condvar,
}

/// The state of a rank's thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum ThreadState {
    /// Not in a run.
    #[default]
    Outside,
    /// Waits for the others to begin a run.
    Enters,
    Running,
    /// In a run, waiting for its device until the given time at most.
    WaitsUntil(Duration),
    /// Waits for the others to end the run.
    Leaves,
    /// The thread has ended.
    Gone,
}

/// The virtual time of emulated GPUs as one rank's thread sees it. All ranks share one clock, which
/// advances only when every rank in a run waits for its device.
pub(super) struct RankClock {
    shared: Arc<SharedClock>,
    rank: usize,
}

impl RankClock {
    /// Returns a clock for each of the ranks `0..ranks` of this process if the GPUs are emulated;
    /// `None` on real GPUs.
    ///
    /// # Errors
    /// [`cuda::Error::Unavailable`] if the emulated driver cannot be opened.
    pub(super) fn of_ranks(ranks: usize) -> cuda::Result<Option<Vec<Self>>> {
        let Some(clock) = EmulatedClock::open()? else { return Ok(None) };
        let shared = Arc::new(SharedClock {
            clock,
            ranks: Mutex::new(vec![ThreadState::default(); ranks]),
            changed: Condvar::new(),
        });
        Ok(Some((0..ranks).map(|rank| Self { shared: Arc::clone(&shared), rank }).collect()))
    }

    /// Returns the clock of the emulated driver, which all ranks share.
    pub(super) fn emulated(&self) -> EmulatedClock {
        self.shared.clock
    }

    /// Begins a run: blocks until all ranks have called it, for at most a minute.
    pub(super) fn enter(&self) {
        self.wait_in(ThreadState::Enters, ThreadState::Running);
    }

    /// Ends a run: blocks until all ranks in the run have called it, for at most a minute.
    pub(super) fn leave(&self) {
        self.wait_in(ThreadState::Leaves, ThreadState::Outside);
    }

    /// Removes this rank after a failure, so that the others no longer wait for it. It does not
    /// block.
    pub(super) fn give_up(&self) {
        let mut ranks = self.shared.lock();
        ranks[self.rank] = ThreadState::Gone;
        self.shared.settle(&mut ranks);
    }

    /// Lets time pass until a kernel or collective ends on any device, or the given time has
    /// passed.
    fn wait(&self, time: Duration) {
        self.wait_in(ThreadState::WaitsUntil(self.shared.clock.now() + time), ThreadState::Running);
    }

    /// Enters a state and waits until the others, or time, change it. After a time-out it
    /// continues.
    fn wait_in(&self, state: ThreadState, on: ThreadState) {
        let mut ranks = self.shared.lock();
        ranks[self.rank] = state;
        self.shared.settle(&mut ranks);
        let waited =
            self.shared.changed.wait_timeout_while(ranks, RANK_TIMEOUT, |ranks| ranks[self.rank] == state);
        let (mut ranks, _) = waited.unwrap_or_else(PoisonError::into_inner);
        ranks[self.rank] = on;
        self.shared.settle(&mut ranks);
    }
}

impl SharedClock {
    fn lock(&self) -> MutexGuard<'_, Vec<ThreadState>> {
        self.ranks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Advances the ranks' states: all begin a run, all end it, or time passes.
    fn settle(&self, ranks: &mut [ThreadState]) {
        let in_run = |state: &ThreadState| {
            matches!(state, ThreadState::Running | ThreadState::WaitsUntil(_) | ThreadState::Leaves)
        };
        let present = || ranks.iter().filter(|state| **state != ThreadState::Gone);
        let running = || present().filter(|state| in_run(state));
        if running().next().is_none() {
            if present().all(|state| *state == ThreadState::Enters) {
                self.clock.set_query_duration(Duration::ZERO);
                ranks
                    .iter_mut()
                    .filter(|state| **state == ThreadState::Enters)
                    .for_each(|state| *state = ThreadState::Running);
            } else {
                // A query of time lets a polling thread continue.
                self.clock.set_query_duration(EmulatedClock::DEFAULT_QUERY_DURATION);
            }
        } else if running().all(|state| *state == ThreadState::Leaves) {
            self.clock.set_query_duration(EmulatedClock::DEFAULT_QUERY_DURATION);
            ranks.iter_mut().filter(|state| in_run(state)).for_each(|state| *state = ThreadState::Outside);
        } else if running().all(|state| *state != ThreadState::Running) {
            let waits = |state: &ThreadState| {
                if let ThreadState::WaitsUntil(until) = state { Some(*until) } else { None }
            };
            let until = running().filter_map(waits).min().unwrap_or_default();
            self.clock.advance_to_end(until.saturating_sub(self.clock.now()));
            ranks
                .iter_mut()
                .filter(|state| waits(state).is_some())
                .for_each(|state| *state = ThreadState::Running);
        } else {
            return;
        }
        self.changed.notify_all();
    }
}

/// Setter of the durations of launches on emulated GPUs, with the clock of the emulated driver;
/// `None` on real GPUs, where it has no effect.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LaunchTimes(pub(super) Option<EmulatedClock>);

impl LaunchTimes {
    /// Calls `launch`, and returns its result. On emulated GPUs, each kernel or collective that
    /// `launch` enqueues has the duration `time`.
    pub(super) fn each<T>(self, time: Duration, launch: impl FnOnce() -> T) -> T {
        let Some(clock) = self.0 else { return launch() };
        clock.set_launch_duration(Some(time));
        let launched = launch();
        clock.set_launch_duration(None);
        launched
    }
}

impl HostClock for RankClock {
    fn now(&self) -> Duration {
        self.shared.clock.now()
    }

    fn sleep(&self, time: Duration) {
        self.wait(time);
    }

    fn yield_now(&self) {
        self.wait(MAX_YIELD);
    }
}

impl Drop for RankClock {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl fmt::Debug for RankClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the virtual clock of rank {}", self.rank)
    }
}

use std::hint;
use std::thread;
use std::time::Duration;

/// How a worker waits while neither job has anything to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Idle {
    /// Polls without a break: the quickest answer, and a core of its own is needed for it.
    Spin,
    /// Polls at growing intervals for a few microseconds, then gives the core to other threads between polls.
    /// Right when several workers share few cores.
    #[default]
    Yield,
    /// Sleeps this long between polls: the least use of the core, the slowest answer.
    Sleep(Duration),
}

/// Polls in vain before [`Idle::Yield`] begins to yield; it pauses 1, 2, 4, ... spin hints between them.
const SPINS: u32 = 6;

/// One stretch of waiting.
#[derive(Debug)]
pub(crate) struct Wait {
    idle: Idle,
    polls: u32,
}

impl Wait {
    pub(crate) fn new(idle: Idle) -> Self {
        Self { idle, polls: 0 }
    }

    /// There was something to do: the next wait starts afresh.
    pub(crate) fn reset(&mut self) {
        self.polls = 0;
    }

    /// Waits until the next poll is due, but no longer than `limit` where the waiting is a sleep.
    pub(crate) fn wait(&mut self, limit: Option<Duration>) {
        match self.idle {
            Idle::Spin => hint::spin_loop(),
            Idle::Yield if self.polls < SPINS => (0..1u32 << self.polls).for_each(|_| hint::spin_loop()),
            Idle::Yield => thread::yield_now(),
            Idle::Sleep(time) => thread::sleep(limit.map_or(time, |limit| limit.min(time))),
        }
        self.polls = self.polls.saturating_add(1);
    }
}

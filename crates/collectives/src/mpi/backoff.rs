//! What a waiting rank does between two polls.

use std::thread;
use std::time::Duration;

use crate::WaitStrategy;

/// Polls before a parking rank sleeps.
const POLLS_BEFORE_SLEEP: u32 = 300;

/// The longest sleep between two polls, and so the most by which a parking rank comes late.
const LONGEST_SLEEP: Duration = Duration::from_micros(100);

/// The pauses of one wait.
#[derive(Debug)]
pub(super) struct Backoff {
    strategy: WaitStrategy,
    polls: u32,
    sleep: Duration,
}

impl Backoff {
    pub(super) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, polls: 0, sleep: Duration::from_micros(10) }
    }

    /// Between two polls that found nothing.
    pub(super) fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        match self.strategy {
            WaitStrategy::Spin => std::hint::spin_loop(),
            WaitStrategy::Park if self.polls > POLLS_BEFORE_SLEEP => {
                thread::sleep(self.sleep);
                self.sleep = (self.sleep * 2).min(LONGEST_SLEEP);
            }
            WaitStrategy::Yield | WaitStrategy::Park => thread::yield_now(),
        }
    }
}

/// The strategy as this host can afford it: ranks that spin on more cores than there are keep each other from running,
/// so they yield, as Open MPI's own waits do.
pub(super) fn affordable(strategy: WaitStrategy) -> WaitStrategy {
    let local_ranks: usize =
        std::env::var("OMPI_COMM_WORLD_LOCAL_SIZE").ok().and_then(|size| size.parse().ok()).unwrap_or(1);
    strategy.among(local_ranks)
}

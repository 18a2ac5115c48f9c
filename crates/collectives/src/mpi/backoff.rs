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
///
/// `mpirun` knows whether they are more, and says so to each rank; one that it has bound to a core of its own sees only that
/// one. Where another launcher says nothing, the ranks of this host are compared with the cores that this one may use.
pub(super) fn affordable(strategy: WaitStrategy) -> WaitStrategy {
    let variable = |name| std::env::var(name).ok();
    match (strategy, variable("OMPI_MCA_mpi_oversubscribe").as_deref()) {
        (WaitStrategy::Spin, Some("1")) => WaitStrategy::Yield,
        (WaitStrategy::Spin, Some("0")) => WaitStrategy::Spin,
        _ => {
            let local_ranks = variable("OMPI_COMM_WORLD_LOCAL_SIZE").and_then(|size| size.parse().ok());
            strategy.among(local_ranks.unwrap_or(1))
        }
    }
}

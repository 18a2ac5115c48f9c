//! Pauses between the polls of a waiting rank.

use std::thread;
use std::time::Duration;

use crate::WaitStrategy;

/// Number of polls before a parking rank sleeps.
const POLLS_BEFORE_SLEEP: u32 = 300;

/// Maximum sleep between two polls, and thus the maximum delay of a parking rank.
const MAX_SLEEP: Duration = Duration::from_micros(100);

/// Pauses between the polls of one wait. Under `Park`, they become longer.
#[derive(Debug)]
pub(super) struct Backoff {
    strategy: WaitStrategy,
    polls: u32,
    sleep: Duration,
}

impl Backoff {
    /// Creates the pauses of a wait that begins now.
    pub(super) fn new(strategy: WaitStrategy) -> Self {
        Self { strategy, polls: 0, sleep: Duration::from_micros(10) }
    }

    /// Pauses after a poll that made no progress.
    pub(super) fn pause(&mut self) {
        self.polls = self.polls.saturating_add(1);
        match self.strategy {
            WaitStrategy::Spin => std::hint::spin_loop(),
            WaitStrategy::Park if self.polls > POLLS_BEFORE_SLEEP => {
                thread::sleep(self.sleep);
                self.sleep = (self.sleep * 2).min(MAX_SLEEP);
            }
            WaitStrategy::Yield | WaitStrategy::Park => thread::yield_now(),
        }
    }
}

/// Returns the strategy for this host: `Spin` becomes `Yield` if there are more ranks than cores,
/// because spinning ranks keep each other from running. Open MPI's own waits do the same.
///
/// `mpirun` tells each rank whether there are more ranks than cores. A rank cannot see that itself
/// if it is bound to one core. Under another launcher, the number of ranks on this host is compared
/// with the number of cores available to this process.
pub(super) fn strategy_for_host(strategy: WaitStrategy) -> WaitStrategy {
    let variable = |name| std::env::var(name).ok();
    match (strategy, variable("OMPI_MCA_mpi_oversubscribe").as_deref()) {
        (WaitStrategy::Spin, Some("1")) => WaitStrategy::Yield,
        (WaitStrategy::Spin, Some("0")) => WaitStrategy::Spin,
        _ => {
            let local_ranks = variable("OMPI_COMM_WORLD_LOCAL_SIZE").and_then(|size| size.parse().ok());
            strategy.for_ranks(local_ranks.unwrap_or(1))
        }
    }
}

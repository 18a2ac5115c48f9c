//! The world (the set of all ranks) whose ranks are threads.

use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::ThreadCommunicator;
use super::group::ThreadGroup;
use super::world_state::{Presence, ThreadWorldState};
use crate::WaitStrategy;

/// World whose ranks are threads of this process: its settings, and its start.
///
/// ```
/// use std::time::Duration;
///
/// use collectives::{Communicator, HostBuffer, ReduceOp, ThreadWorld, WaitStrategy};
///
/// let world =
///     ThreadWorld::new(3).with_wait(WaitStrategy::Yield).with_timeout(Duration::from_secs(5));
/// let sums = world.run(|ranks| {
///     let mut ones = HostBuffer::from(vec![1_i32; 2]);
///     ranks.all_reduce(&mut ones, ReduceOp::Sum, &mut ()).map(|()| ones)
/// });
/// assert!(sums.iter().all(|sums| sums.as_ref().is_ok_and(|sums| *sums == [3, 3])));
/// ```
#[derive(Debug, Clone)]
pub struct ThreadWorld {
    size: usize,
    wait: WaitStrategy,
    timeout: Duration,
}

impl ThreadWorld {
    /// Creates a world of `size` ranks that wait by [`WaitStrategy::Park`], with a time-out of 30
    /// seconds.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { size, wait: WaitStrategy::default(), timeout: Duration::from_secs(30) }
    }

    /// Sets the strategy by which ranks wait for each other.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// Sets the time-out of operations: an operation that still lacks ranks this long after its
    /// start fails. It must exceed the longest time between the calls of two ranks, including their
    /// computations in between.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Creates one communicator over the whole world for each rank, to be moved into its thread.
    ///
    /// A rank ends when its last communicator is dropped, including those of subgroups.
    #[must_use]
    pub fn communicators(&self) -> Vec<ThreadCommunicator> {
        let world = Arc::new(ThreadWorldState::new(self.size, self.wait, self.timeout));
        let everyone = Arc::new(ThreadGroup::new(0, (0..self.size).collect()));
        (0..self.size)
            .map(|rank| {
                let presence = Arc::new(Presence::new(Arc::clone(&world), rank));
                ThreadCommunicator::new(presence, Arc::clone(&everyone), rank)
            })
            .collect()
    }

    /// Calls `rank` with a communicator on one thread for each rank, and returns the results in the
    /// order of the ranks.
    ///
    /// # Panics
    /// If a rank panics: with the panic of the first one, after all ranks have ended. The others
    /// get [`Error::RankFailed`](crate::Error::RankFailed) from the operations that wait for it.
    /// Also if the system cannot start a thread, like [`std::thread::scope`].
    pub fn run<R: Send>(&self, rank: impl Fn(ThreadCommunicator) -> R + Sync) -> Vec<R> {
        let communicators = self.communicators();
        let world = communicators.first().map(|communicator| Arc::clone(communicator.world()));
        let outcomes: Vec<thread::Result<R>> = thread::scope(|scope| {
            let rank = &rank;
            let threads: Vec<_> = communicators
                .into_iter()
                .map(|communicator| scope.spawn(move || rank(communicator)))
                .collect();
            threads.into_iter().map(thread::ScopedJoinHandle::join).collect()
        });
        // Later panics are often caused by the first one.
        let first_panic = world.and_then(|world| world.liveness.first_panic());
        let (mut results, mut panics) = (Vec::new(), Vec::new());
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(result) => results.push(result),
                Err(panic) if Some(rank) == first_panic => panic::resume_unwind(panic),
                Err(panic) => panics.push(panic),
            }
        }
        // A rank whose communicators had moved to another thread when it panicked.
        match panics.pop() {
            Some(panic) => panic::resume_unwind(panic),
            None => results,
        }
    }
}

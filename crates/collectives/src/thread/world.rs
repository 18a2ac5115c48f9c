//! The ranks of a process.

use std::panic;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::ThreadCommunicator;
use super::group::GroupState;
use super::ranks::{Presence, World};
use crate::WaitStrategy;

/// Ranks that are threads of this process.
///
/// ```
/// use std::time::Duration;
///
/// use collectives::{Communicator, ReduceOp, ThreadWorld, WaitStrategy};
///
/// let world = ThreadWorld::new(3).with_wait(WaitStrategy::Yield).with_timeout(Duration::from_secs(5));
/// let sums = world.run(|ranks| {
///     let mut ones = vec![1_i32; 2];
///     ranks.all_reduce(&mut ones, ReduceOp::Sum, &mut ()).map(|()| ones)
/// });
/// assert_eq!(sums, [Ok(vec![3, 3]), Ok(vec![3, 3]), Ok(vec![3, 3])]);
/// ```
#[derive(Debug, Clone)]
pub struct ThreadWorld {
    size: usize,
    wait: WaitStrategy,
    timeout: Duration,
}

impl ThreadWorld {
    /// A world of `size` ranks that wait by [`WaitStrategy::Park`], at most for 30 seconds.
    #[must_use]
    pub fn new(size: usize) -> Self {
        Self { size, wait: WaitStrategy::default(), timeout: Duration::from_secs(30) }
    }

    /// How ranks wait for each other.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// How long after its start an operation that still lacks ranks fails. Give more than the longest time between one
    /// rank's call and another's, which includes what a rank computes in between.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// One communicator over the whole world for each rank, to be moved into its thread.
    ///
    /// A rank has ended when its last communicator, subgroups included, is dropped.
    #[must_use]
    pub fn communicators(&self) -> Vec<ThreadCommunicator> {
        let world = Arc::new(World::new(self.size, self.wait, self.timeout));
        let everyone = Arc::new(GroupState::new(0, (0..self.size).collect()));
        (0..self.size)
            .map(|rank| {
                let presence = Arc::new(Presence::new(Arc::clone(&world), rank));
                ThreadCommunicator::new(presence, Arc::clone(&everyone), rank)
            })
            .collect()
    }

    /// Runs `rank` on one thread for each rank and gives what they return, in the order of the ranks.
    ///
    /// # Panics
    /// If a rank panics: with the first one's panic, after all ranks have ended (the others get
    /// [`Error::RankFailed`](crate::Error::RankFailed) from what they wait for). If the system starts no more threads,
    /// like [`std::thread::scope`].
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
        // Ranks that panic afterwards are often only its victims.
        let first_panic = world.and_then(|world| world.liveness.first_panic());
        let (mut results, mut panics) = (Vec::new(), Vec::new());
        for (rank, outcome) in outcomes.into_iter().enumerate() {
            match outcome {
                Ok(result) => results.push(result),
                Err(panic) if Some(rank) == first_panic => panic::resume_unwind(panic),
                Err(panic) => panics.push(panic),
            }
        }
        // A rank whose communicators were elsewhere when it panicked.
        match panics.pop() {
            Some(panic) => panic::resume_unwind(panic),
            None => results,
        }
    }
}

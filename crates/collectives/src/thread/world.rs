//! The ranks of a process, and what they share.

use std::collections::HashMap;
use std::panic;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::ThreadCommunicator;
use super::group::GroupState;
use super::liveness::Liveness;
use super::parking::Parking;
use super::sync::Mutex;
use crate::{Departure, WaitStrategy};

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
        let world = Arc::new(World {
            timeout: self.timeout,
            parking: Parking::new(self.wait, self.size),
            liveness: Liveness::new(self.size),
            groups: Mutex::new(Groups::default()),
        });
        let everyone = Arc::new(GroupState::new(0, (0..self.size).collect()));
        (0..self.size)
            .map(|rank| {
                let presence = Arc::new(Presence { world: Arc::clone(&world), rank });
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

/// What the ranks of a world share.
#[derive(Debug)]
pub(super) struct World {
    pub(super) timeout: Duration,
    pub(super) parking: Parking,
    pub(super) liveness: Liveness,
    groups: Mutex<Groups>,
}

#[derive(Debug, Default)]
struct Groups {
    created: u64,
    /// Until each member has fetched its group: the number left to come.
    split: HashMap<SplitKey, (Arc<GroupState>, usize)>,
}

/// One group of one split: the parent group, the parent's sequence number of the split, and the color.
pub(super) type SplitKey = (u64, u64, u32);

impl World {
    /// The subgroup of `parent` at the places `ranks`, the same each time.
    pub(super) fn listed_group(&self, parent: &GroupState, ranks: &[usize]) -> Arc<GroupState> {
        parent.listed(ranks, || {
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            subgroup(&mut groups.created, parent, ranks)
        })
    }

    /// The subgroup that a split made, which each member fetches once.
    pub(super) fn split_group(&self, key: SplitKey, parent: &GroupState, ranks: &[usize]) -> Arc<GroupState> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let Groups { created, split } = &mut *groups;
        let (group, left) =
            split.entry(key).or_insert_with(|| (subgroup(created, parent, ranks), ranks.len()));
        let group = Arc::clone(group);
        *left -= 1;
        if *left == 0 {
            split.remove(&key);
        }
        group
    }
}

fn subgroup(created: &mut u64, parent: &GroupState, ranks: &[usize]) -> Arc<GroupState> {
    *created += 1;
    Arc::new(GroupState::new(*created, ranks.iter().map(|&rank| parent.members[rank]).collect()))
}

/// A rank that has not ended: all its communicators hold it, and dropping it records the end.
#[derive(Debug)]
pub(super) struct Presence {
    pub(super) world: Arc<World>,
    rank: usize,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let how = if thread::panicking() { Departure::Panicked } else { Departure::Left };
        self.world.liveness.depart(self.rank, how);
        self.world.parking.notify();
    }
}

//! State shared by the ranks of a world, the set of all ranks. An *event* is a change for which a
//! rank may wait: an operation becomes ready, fails or completes, or a rank ends.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::group::ThreadGroup;
use super::liveness::Liveness;
use super::parking::Parking;
use super::sync::Mutex;
use crate::{Departure, WaitStrategy};

/// State of a world: its settings, its event count, the ranks that have ended, and new groups.
#[derive(Debug)]
pub(super) struct ThreadWorldState {
    /// Maximum time for which an operation waits for ranks that have not called it.
    pub(super) timeout: Duration,
    /// Count of events on which ranks wait for each other.
    pub(super) parking: Parking,
    /// Record of the ranks that have ended.
    pub(super) liveness: Liveness,
    groups: Mutex<SubgroupRegistry>,
}

#[derive(Debug, Default)]
struct SubgroupRegistry {
    created: u64,
    /// Groups of splits that some members have not fetched yet, with the number of those
    /// members.
    split: HashMap<SplitKey, (Arc<ThreadGroup>, usize)>,
}

/// Key of a group that a split creates: identifier of the parent group, sequence number of the
/// split among its collectives, and color.
pub(super) type SplitKey = (u64, u64, u32);

impl ThreadWorldState {
    /// Creates the state of a world of `size` ranks, of which none has ended. `timeout` is the
    /// field of that name.
    pub(super) fn new(size: usize, wait: WaitStrategy, timeout: Duration) -> Self {
        Self {
            timeout,
            parking: Parking::new(wait, size),
            liveness: Liveness::new(size),
            groups: Mutex::new(SubgroupRegistry::default()),
        }
    }

    /// Returns the subgroup of the members of `parent` with the numbers `ranks`. The same list
    /// returns the same subgroup.
    pub(super) fn cached_group(&self, parent: &ThreadGroup, ranks: &[usize]) -> Arc<ThreadGroup> {
        parent.cached_subgroup(ranks, || {
            let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
            subgroup(&mut groups.created, parent, ranks)
        })
    }

    /// Returns the group that a split of `parent` has created for the members with the numbers
    /// `ranks`. Each member calls it once.
    pub(super) fn split_group(
        &self,
        key: SplitKey,
        parent: &ThreadGroup,
        ranks: &[usize],
    ) -> Arc<ThreadGroup> {
        let mut groups = self.groups.lock().unwrap_or_else(PoisonError::into_inner);
        let SubgroupRegistry { created, split } = &mut *groups;
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

fn subgroup(created: &mut u64, parent: &ThreadGroup, ranks: &[usize]) -> Arc<ThreadGroup> {
    *created += 1;
    Arc::new(ThreadGroup::new(*created, ranks.iter().map(|&rank| parent.members[rank]).collect()))
}

/// Record that a rank has not ended. All communicators of the rank share it, and dropping it
/// records the rank's end.
#[derive(Debug)]
pub(super) struct Presence {
    /// World of the rank.
    pub(super) world: Arc<ThreadWorldState>,
    rank: usize,
}

impl Presence {
    /// Creates the record of a rank of the world.
    pub(super) fn new(world: Arc<ThreadWorldState>, rank: usize) -> Self {
        Self { world, rank }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let how = if thread::panicking() { Departure::Panicked } else { Departure::Left };
        self.world.liveness.depart(self.rank, how);
        self.world.parking.notify();
    }
}

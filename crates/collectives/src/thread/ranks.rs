//! What the ranks of a process share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::thread;
use std::time::Duration;

use super::group::GroupState;
use super::liveness::Liveness;
use super::parking::Parking;
use super::sync::Mutex;
use crate::{Departure, WaitStrategy};

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
    pub(super) fn new(size: usize, wait: WaitStrategy, timeout: Duration) -> Self {
        Self {
            timeout,
            parking: Parking::new(wait, size),
            liveness: Liveness::new(size),
            groups: Mutex::new(Groups::default()),
        }
    }

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

impl Presence {
    pub(super) fn new(world: Arc<World>, rank: usize) -> Self {
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

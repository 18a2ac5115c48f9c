//! Last uses of the bytes of an allocation. Offsets are in bytes from its start. A clock is a set
//! of tasks.

use super::{clock::VectorClock, tasks::Task};
use ptx_emulator::AccessKind;
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Uses of contiguous bytes with which a later use may conflict.
#[derive(Clone, Default)]
struct Uses {
    /// The last write and the atomic operations since, without those that precede another atomic
    /// operation.
    writes: Vec<(Arc<Task>, AccessKind)>,
    /// The reads since the last write, without those that precede another read.
    reads: Vec<Arc<Task>>,
}

impl Uses {
    /// Returns a use that is unordered with a new one and conflicts with it. `kind` is `None` for
    /// the end of the allocation.
    fn conflict(&self, kind: Option<AccessKind>, clock: &VectorClock) -> Option<(&Arc<Task>, AccessKind)> {
        let both_atomic = |other| kind == Some(AccessKind::Atomic) && other == AccessKind::Atomic;
        let mut writes = self.writes.iter().map(|(task, other)| (task, *other));
        let write = writes.find(|(task, other)| !task.is_before(clock) && !both_atomic(*other));
        write.or_else(|| {
            let mut reads = self.reads.iter().filter(|_| kind != Some(AccessKind::Read));
            reads.find(|task| !task.is_before(clock)).map(|task| (task, AccessKind::Read))
        })
    }

    fn add(&mut self, kind: AccessKind, task: &Arc<Task>) {
        match kind {
            AccessKind::Read => self.reads.retain(|read| !read.is_before(&task.clock)),
            AccessKind::Write => *self = Self::default(),
            // Earlier writes and reads are kept, because other atomic operations may be unordered
            // with them.
            AccessKind::Atomic => {
                let is_over = |write: &Task, kind| kind == AccessKind::Atomic && write.is_before(&task.clock);
                self.writes.retain(|(write, kind)| !is_over(write, *kind));
            }
        }
        if kind == AccessKind::Read {
            self.reads.push(Arc::clone(task));
        } else {
            self.writes.push((Arc::clone(task), kind));
        }
    }

    fn is_same(&self, other: &Self) -> bool {
        let same = |(a, b): (&Arc<Task>, &Arc<Task>)| Arc::ptr_eq(a, b);
        self.writes.len() == other.writes.len()
            && self.reads.len() == other.reads.len()
            && self.writes.iter().zip(&other.writes).all(|(a, b)| a.1 == b.1 && same((&a.0, &b.0)))
            && self.reads.iter().zip(&other.reads).all(same)
    }
}

/// Earlier use of an allocation that conflicts with a later one and is not ordered with it.
pub(in crate::state) struct Conflict {
    /// Task of the earlier use.
    pub(in crate::state) earlier: Arc<Task>,
    /// Kind of the earlier use.
    pub(in crate::state) kind: AccessKind,
    /// First range of bytes that conflict, as offsets in the allocation.
    pub(in crate::state) bytes: Range<u64>,
}

/// Earlier uses of an allocation with which later uses may conflict, by range of bytes.
pub(in crate::state) struct AllocationUses {
    length: u64,
    /// Uses by their first byte. Each region extends to the next one.
    regions: BTreeMap<u64, Uses>,
}

impl AllocationUses {
    /// Creates the record of an unused allocation of `length` bytes.
    pub(in crate::state) fn new(length: u64) -> Self {
        Self { length, regions: BTreeMap::from([(0, Uses::default())]) }
    }

    /// Returns the size of the allocation in bytes.
    pub(in crate::state) fn length(&self) -> u64 {
        self.length
    }

    /// Records a use of the given bytes by a task. Returns the first earlier use that conflicts
    /// with it, or `None`.
    pub(in crate::state) fn add(
        &mut self,
        kind: AccessKind,
        bytes: Range<u64>,
        task: &Arc<Task>,
    ) -> Option<Conflict> {
        let bytes = bytes.start..bytes.end.min(self.length);
        if bytes.is_empty() {
            return None;
        }
        let found = self.conflict(Some(kind), bytes.clone(), &task.clock);
        self.split(bytes.start);
        self.split(bytes.end);
        self.regions.range_mut(bytes.clone()).for_each(|(_, uses)| uses.add(kind, task));
        self.merge(bytes);
        found
    }

    /// Returns the first recorded use of the given bytes that conflicts with a use of the given
    /// kind by a task whose predecessors are `clock`. If `kind` is `None`, the conflict is with the
    /// end of the allocation. Returns `None` if there is no conflict.
    pub(in crate::state) fn conflict(
        &self,
        kind: Option<AccessKind>,
        bytes: Range<u64>,
        clock: &VectorClock,
    ) -> Option<Conflict> {
        let first = self.regions.range(..=bytes.start).next_back().map_or(0, |(start, _)| *start);
        self.regions.range(first..bytes.end).find_map(|(start, uses)| {
            let (earlier, other) = uses.conflict(kind, clock)?;
            let end = self.regions.range(start + 1..).next().map_or(self.length, |(next, _)| *next);
            let bytes = bytes.start.max(*start)..bytes.end.min(end);
            Some(Conflict { earlier: Arc::clone(earlier), kind: other, bytes })
        })
    }

    /// Returns the clocks of the tasks that have last written the byte at an offset.
    pub(in crate::state) fn writers(&self, offset: u64) -> impl Iterator<Item = &VectorClock> {
        let uses = self.regions.range(..=offset).next_back();
        uses.into_iter().flat_map(|(_, uses)| &uses.writes).map(|(task, _)| &task.clock)
    }

    fn split(&mut self, at: u64) {
        if at < self.length && !self.regions.contains_key(&at) {
            let uses =
                self.regions.range(..at).next_back().map_or_else(Uses::default, |(_, uses)| uses.clone());
            self.regions.insert(at, uses);
        }
    }

    /// Merges equal neighbouring regions, as left by accesses to single bytes.
    fn merge(&mut self, bytes: Range<u64>) {
        let starts: Vec<_> =
            self.regions.range(bytes.start.max(1)..=bytes.end).map(|(start, _)| *start).collect();
        for start in starts {
            let before = self.regions.range(..start).next_back();
            if before.zip(self.regions.get(&start)).is_some_and(|((_, a), b)| a.is_same(b)) {
                self.regions.remove(&start);
            }
        }
    }
}

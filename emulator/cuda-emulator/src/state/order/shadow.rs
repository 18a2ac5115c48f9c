//! Who has used an allocation last.

use super::{clock::VectorClock, tasks::Task};
use ptx_emulator::AccessKind;
use std::{collections::BTreeMap, ops::Range, sync::Arc};

/// Who has used contiguous bytes, as far as a later use may be in conflict with it.
#[derive(Clone, Default)]
struct Uses {
    /// The last write, and what has changed them by atomic operations since, without what comes before another one of those.
    writes: Vec<(Arc<Task>, AccessKind)>,
    /// The reads since the last write, likewise.
    reads: Vec<Arc<Task>>,
}

impl Uses {
    /// A use that is not ordered with one of these. `kind` is none for the end of the memory.
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
            // It hides neither writes nor reads from other atomic operations: those may be beside it.
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

/// An earlier use of bytes that nothing orders with a later one.
pub(in crate::state) struct Conflict {
    pub(in crate::state) earlier: Arc<Task>,
    pub(in crate::state) kind: AccessKind,
    /// Where in the allocation the two meet first.
    pub(in crate::state) bytes: Range<u64>,
}

/// The uses of an allocation.
pub(in crate::state) struct Shadow {
    length: u64,
    /// By its first byte, each up to the next one.
    regions: BTreeMap<u64, Uses>,
}

impl Shadow {
    /// Of an allocation of so many bytes that nobody has used.
    pub(in crate::state) fn new(length: u64) -> Self {
        Self { length, regions: BTreeMap::from([(0, Uses::default())]) }
    }

    pub(in crate::state) fn length(&self) -> u64 {
        self.length
    }

    /// Notes a use, and gives the first one before that it is in conflict with.
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

    /// The first use of any of the bytes that is in conflict with one that knows this.
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

    /// What those know who have written a byte.
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

    /// Makes one of neighbours that are the same, as whoever uses an allocation byte by byte leaves them.
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

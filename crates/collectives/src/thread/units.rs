//! Work that several threads divide among themselves.

use std::ops::Range;

use super::sync::{AtomicUsize, Ordering};

/// Independent units of work, numbered from 0. Each is executed once, by the thread that claims it.
/// Each member has a share of consecutive units, which it claims before those of others: the same
/// thread then writes the same part of a buffer every time, and finds it in its cache.
#[derive(Debug)]
pub(super) struct Units {
    count: usize,
    /// Number of claims of each member's share. May exceed the number of its units.
    claims: Vec<AtomicUsize>,
    unfinished: AtomicUsize,
    /// Member that panicked in a unit, or `NONE`.
    panicked_member: AtomicUsize,
}

const NONE: usize = usize::MAX;

impl Units {
    /// Creates `count` units of `members` members that no thread has claimed.
    pub(super) fn new(count: usize, members: usize) -> Self {
        Self {
            count,
            claims: (0..members).map(|_| AtomicUsize::new(0)).collect(),
            unfinished: AtomicUsize::new(count),
            panicked_member: AtomicUsize::new(NONE),
        }
    }

    /// Returns the number of units of the largest share.
    pub(super) fn per_member(&self) -> usize {
        self.count.div_ceil(self.claims.len().max(1))
    }

    /// Claims a unit for the member at slot `member` and returns its number: one of its own share,
    /// or one of the next members'. `None` if all are claimed. O(members).
    pub(super) fn claim(&self, member: usize) -> Option<usize> {
        let members = self.claims.len();
        (member..members).chain(0..member.min(members)).find_map(|member| {
            let (units, claims) = (self.share(member), &self.claims[member]);
            // A load first keeps waiting threads from contending for the cache line.
            if claims.load(Ordering::Relaxed) >= units.len() {
                return None;
            }
            let unit = units.start + claims.fetch_add(1, Ordering::Relaxed);
            (unit < units.end).then_some(unit)
        })
    }

    /// Returns the units of a member.
    fn share(&self, member: usize) -> Range<usize> {
        let start = |member: usize| (member * self.per_member()).min(self.count);
        start(member)..start(member + 1)
    }

    /// Records that a claimed unit is finished. Returns whether it was the last one.
    pub(super) fn finish(&self) -> bool {
        self.unfinished.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// Whether all units are finished. A thread that sees `true` also sees their results.
    pub(super) fn are_finished(&self) -> bool {
        self.unfinished.load(Ordering::Acquire) == 0
    }

    /// Records that the member at slot `member` panicked in a unit. The unit then never finishes.
    pub(super) fn abandon(&self, member: usize) {
        self.panicked_member.store(member, Ordering::Release);
    }

    /// Returns the slot of a member that panicked in a unit, or `None`.
    pub(super) fn panicked_member(&self) -> Option<usize> {
        Some(self.panicked_member.load(Ordering::Acquire)).filter(|&member| member != NONE)
    }
}

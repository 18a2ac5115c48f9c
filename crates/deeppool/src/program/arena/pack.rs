//! Offsets for items of which some overlap in time, so that these do not overlap in space, in as
//! little space as possible: dynamic storage allocation, which is NP-hard.
//!
//! Items are placed one after another: by size, the largest first (Pisarchyk and Lee, "Efficient
//! Memory Management for Deep Neural Net Inference", 2020), by size times lifetime, and by birth,
//! and the best of the three is taken. If there are few, a local search improves the order. If
//! there are many, they are allocated and freed in the order of the steps, as by an allocator.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::lifetimes::Lifetime;

/// Number of items up to which the smallest packing is searched for; of more, one within 3%
/// of the bound.
const FEW: usize = 40;
/// Maximum number of changes of the order.
const MAX_TRIES: usize = 2_000;
/// Number of pairs of items that all changes of the order together compare, about 3 ms.
const COMPARISONS: usize = 2_000_000;
/// Maximum number of items of which each pair is compared.
const MAX_COMPARED: usize = 6000;

/// An item to place.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item<'l> {
    /// Its size. Not 0.
    pub(super) size: usize,
    /// The time in which it needs its space.
    pub(super) lifetime: &'l Lifetime,
}

/// Offset of each item, and size of the arena.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Packing {
    pub(super) offsets: Vec<usize>,
    pub(super) size: usize,
}

/// Packs items, given in the order of their birth. `bound` is a lower bound of the size of the
/// arena: the search ends when it is nearly reached. O(items^2) for up to 6,000 items, O(items x
/// log items) above.
pub(super) fn pack(items: &[Item<'_>], bound: usize) -> Packing {
    if items.len() > MAX_COMPARED {
        return pack_by_birth(items);
    }
    // Of few items, the smallest packing is wanted.
    let enough = if items.len() <= FEW { bound } else { bound + bound * 3 / 100 };
    let overlaps = Overlaps::new(items);
    let by_birth: Vec<usize> = (0..items.len()).collect();
    let (mut by_size, mut by_space_and_time) = (by_birth.clone(), by_birth.clone());
    by_size.sort_by_key(|&item| Reverse(items[item].size));
    by_space_and_time.sort_by_key(|&item| Reverse(overlaps.count(item) * items[item].size));
    let mut search = Search { items, overlaps, best: Packing::default(), order: Vec::new() };
    search.best.size = usize::MAX;
    for order in [by_size, by_space_and_time, by_birth] {
        for gap in [Gap::Smallest, Gap::Lowest] {
            if search.best.size > enough {
                search.try_order(order.clone(), gap);
            }
        }
    }
    search.improve(enough);
    search.best
}

/// Rule by which one of the gaps that are large enough for an item is selected.
#[derive(Debug, Clone, Copy)]
enum Gap {
    Smallest,
    Lowest,
}

/// The best packing so far.
struct Search<'i> {
    items: &'i [Item<'i>],
    overlaps: Overlaps,
    best: Packing,
    /// Order of the items from which the best packing results.
    order: Vec<usize>,
}

impl Search<'_> {
    /// Packs in this order, and keeps the result if it is not larger than the best.
    fn try_order(&mut self, order: Vec<usize>, gap: Gap) {
        let packing = pack_in_order(self.items, &self.overlaps, &order, gap);
        if packing.size <= self.best.size {
            (self.best, self.order) = (packing, order);
        }
    }

    /// Moves items forward in the order, preferably those at the end of the arena, while it is
    /// larger than `enough`.
    fn improve(&mut self, enough: usize) {
        let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut below = |count: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) as usize % count
        };
        let count = self.items.len();
        let tries = COMPARISONS.checked_div(count * count).unwrap_or(0).min(MAX_TRIES);
        for attempt in 0..tries {
            if self.best.size <= enough {
                return;
            }
            let mut order = self.order.clone();
            for _ in 0..=below(2) {
                let mut from = below(count);
                if attempt % 2 == 0 {
                    let is_last =
                        |&item: &usize| self.best.offsets[item] + self.items[item].size == self.best.size;
                    from = order.iter().position(is_last).unwrap_or(from);
                }
                let item = order.remove(from);
                order.insert(below(from + 1), item);
            }
            self.try_order(order, Gap::Lowest);
        }
    }
}

/// Pairs of items that overlap in time.
struct Overlaps {
    /// Row after row, one bit for each item.
    bits: Vec<u64>,
    words: usize,
}

impl Overlaps {
    fn new(items: &[Item<'_>]) -> Self {
        let words = items.len().div_ceil(64);
        let mut overlaps = Self { bits: vec![0; words * items.len()], words };
        for (a, item) in items.iter().enumerate() {
            for (b, other) in items[..a].iter().enumerate() {
                if item.lifetime.overlaps(other.lifetime) {
                    overlaps.bits[a * words + b / 64] |= 1 << (b % 64);
                    overlaps.bits[b * words + a / 64] |= 1 << (a % 64);
                }
            }
        }
        overlaps
    }

    fn contains(&self, a: usize, b: usize) -> bool {
        self.bits[a * self.words + b / 64] >> (b % 64) & 1 == 1
    }

    /// Returns the number of items that overlap an item, itself included.
    fn count(&self, item: usize) -> usize {
        let row = &self.bits[item * self.words..][..self.words];
        1 + row.iter().map(|word| word.count_ones() as usize).sum::<usize>()
    }
}

/// Places items in the given order, each in a gap between the placed items that it overlaps in
/// time, or behind them. Of equal gaps the lowest one is taken.
fn pack_in_order(items: &[Item<'_>], overlaps: &Overlaps, order: &[usize], gap: Gap) -> Packing {
    let mut packing = Packing { offsets: vec![0; items.len()], size: 0 };
    // Placed items by offset.
    let mut placed: Vec<usize> = Vec::with_capacity(items.len());
    for &item in order {
        let size = items[item].size;
        let mut end = 0;
        let mut taken: Option<(usize, usize)> = None;
        for &other in &placed {
            if !overlaps.contains(item, other) {
                continue;
            }
            let start = packing.offsets[other];
            if start >= end + size && taken.is_none_or(|(smallest, _)| start - end < smallest) {
                taken = Some((start - end, end));
                if matches!(gap, Gap::Lowest) {
                    break;
                }
            }
            end = end.max(start + items[other].size);
        }
        let offset = taken.map_or(end, |(_, offset)| offset);
        packing.offsets[item] = offset;
        packing.size = packing.size.max(offset + size);
        let place = placed.partition_point(|&other| packing.offsets[other] <= offset);
        placed.insert(place, item);
    }
    packing
}

/// Places items in the order of their birth, each in the smallest free range. A range is free once
/// its item is dead for every item that is born later. An item counts as alive from its first
/// to its last value. O(items x log items).
fn pack_by_birth(items: &[Item<'_>]) -> Packing {
    let mut packing = Packing { offsets: vec![0; items.len()], size: 0 };
    let mut free = FreeRanges::default();
    // Minimum first: number of items that are born before the death of the item.
    let mut alive: BinaryHeap<Reverse<(usize, usize)>> = BinaryHeap::new();
    let births = Births::new(items);
    for (item, &Item { size, .. }) in items.iter().enumerate() {
        while let Some(&Reverse((dies, dead))) = alive.peek() {
            if dies > item {
                break;
            }
            alive.pop();
            free.add(packing.offsets[dead], items[dead].size);
        }
        let offset = free.take(size).unwrap_or_else(|| free.extend(&mut packing.size, size));
        packing.offsets[item] = offset;
        alive.push(Reverse((births.first_after(items[item].lifetime), item)));
    }
    packing
}

/// Births of items, by which the first item after a death is found.
struct Births {
    /// For each item: the minimum of the births of all items from it on.
    min_after: Vec<[u32; 2]>,
}

impl Births {
    fn new(items: &[Item<'_>]) -> Self {
        let mut min = [u32::MAX; 2];
        let mut min_after: Vec<[u32; 2]> = items
            .iter()
            .rev()
            .map(|item| {
                let born = item.lifetime.born();
                min = [min[0].min(born[0]), min[1].min(born[1])];
                min
            })
            .collect();
        min_after.reverse();
        Self { min_after }
    }

    /// Returns the first item of which it and all later ones are born after the lifetime.
    /// O(log items).
    fn first_after(&self, lifetime: &Lifetime) -> usize {
        let dies = lifetime.dies();
        self.min_after.partition_point(|born| born[0] < dies[0] || born[1] < dies[1])
    }
}

/// Free ranges below the end of the space.
#[derive(Default)]
struct FreeRanges {
    /// Size by start.
    by_start: BTreeMap<usize, usize>,
    /// Size and start.
    by_size: BTreeSet<(usize, usize)>,
}

impl FreeRanges {
    /// Adds a range, joined with its free neighbours.
    fn add(&mut self, mut start: usize, mut size: usize) {
        let before = self.by_start.range(..start).next_back().map(|(&before, &size)| (before, size));
        if let Some((before, before_size)) = before.filter(|(before, size)| before + size == start) {
            self.remove(before, before_size);
            (start, size) = (before, before_size + size);
        }
        if let Some(&after_size) = self.by_start.get(&(start + size)) {
            self.remove(start + size, after_size);
            size += after_size;
        }
        self.by_start.insert(start, size);
        self.by_size.insert((size, start));
    }

    fn remove(&mut self, start: usize, size: usize) {
        self.by_start.remove(&start);
        self.by_size.remove(&(size, start));
    }

    /// Takes the start of the smallest range of at least this size.
    fn take(&mut self, size: usize) -> Option<usize> {
        let &(found, start) = self.by_size.range((size, 0)..).next()?;
        self.remove(start, found);
        if found > size {
            self.add(start + size, found - size);
        }
        Some(start)
    }

    /// Extends the arena by an item of this size at its end.
    fn extend(&mut self, end: &mut usize, size: usize) -> usize {
        let last = self.by_start.iter().next_back().map(|(&start, &size)| (start, size));
        let start = match last {
            Some((start, size)) if start + size == *end => {
                self.remove(start, size);
                start
            }
            _ => *end,
        };
        *end = start + size;
        start
    }
}

//! Lists of ranks by number, and ranks that do the same thing.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::costs::Share;

/// The number of a list of ranks.
pub(super) type GroupId = u32;
/// The number of a list of ranks among those that one arrangement uses.
pub(super) type Slot = u32;

/// Every list of ranks that was met, once.
#[derive(Debug, Default)]
pub(super) struct Groups {
    lists: Vec<Rc<[usize]>>,
    /// By group: its ranks where they follow each other.
    ranges: Vec<Option<Range<usize>>>,
    numbers: FxHashMap<Rc<[usize]>, GroupId>,
    /// By first rank and length: the same for ranks that follow each other.
    of_range: FxHashMap<(usize, usize), GroupId>,
}

impl Groups {
    pub(super) fn number(&mut self, ranks: &[usize]) -> GroupId {
        if let Some(&known) = self.numbers.get(ranks) {
            return known;
        }
        let (ranks, number) = (Rc::<[usize]>::from(ranks), self.lists.len() as GroupId);
        self.lists.push(Rc::clone(&ranks));
        let follow = ranks.windows(2).all(|pair| pair[0] + 1 == pair[1]);
        self.ranges.push(ranks.first().filter(|_| follow).map(|&first| first..first + ranks.len()));
        self.numbers.insert(ranks, number);
        number
    }

    /// The number of `count` ranks from `start` on.
    pub(super) fn number_of_range(&mut self, start: usize, count: usize) -> GroupId {
        if let Some(&known) = self.of_range.get(&(start, count)) {
            return known;
        }
        let number = self.number(&(start..start + count).collect::<Vec<_>>());
        self.of_range.insert((start, count), number);
        number
    }

    pub(super) fn ranks(&self, group: GroupId) -> &Rc<[usize]> {
        &self.lists[group as usize]
    }

    /// The ranks where they follow each other.
    fn range(&self, group: GroupId) -> Option<Range<usize>> {
        self.ranges[group as usize].clone()
    }

    /// How many groups were met.
    pub(super) fn count(&self) -> usize {
        self.lists.len()
    }

    pub(super) fn len(&self, group: GroupId) -> usize {
        self.lists[group as usize].len()
    }
}

/// Some ranks that are in the same groups with the same shares. They do the same things at the same times, so one of them is
/// looked at for all.
pub(super) type Class = u16;

/// A class in a group.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member {
    pub(super) class: Class,
    pub(super) share: Share,
}

/// The classes of the ranks that are in any of some groups.
#[derive(Debug)]
pub(super) struct Classes {
    /// By class: its ranks.
    pub(super) ranks: Vec<Vec<Range<usize>>>,
    /// Of all groups, one after another.
    members: Vec<Member>,
    /// By slot: where its members begin; and where the last ones end.
    starts: Vec<u32>,
}

impl Classes {
    /// The classes of the ranks of these groups. O(groups^2) where the ranks of each group follow each other, else
    /// O(groups x ranks).
    pub(super) fn new(
        groups: &Groups,
        used: &[GroupId],
        world: usize,
        larger: impl Fn(usize) -> usize,
    ) -> Self {
        let ranges: Option<Vec<Range<usize>>> = used.iter().map(|&group| groups.range(group)).collect();
        match ranges {
            Some(ranges) => Self::of_ranges(&ranges, larger),
            None => Self::refined(groups, used, world, larger),
        }
    }

    /// Divides the ranks wherever a group or its larger shares begin or end.
    fn of_ranges(ranges: &[Range<usize>], larger: impl Fn(usize) -> usize) -> Self {
        let mut borders = Vec::with_capacity(3 * ranges.len());
        for range in ranges {
            borders.extend([range.start, range.start + larger(range.len()), range.end]);
        }
        borders.sort_unstable();
        borders.dedup();
        let is_used = |part: &Range<usize>| ranges.iter().any(|range| range.contains(&part.start));
        let parts: Vec<Range<usize>> =
            borders.windows(2).map(|ends| ends[0]..ends[1]).filter(is_used).collect();
        let (mut members, mut starts) = (Vec::new(), Vec::with_capacity(ranges.len() + 1));
        for range in ranges {
            starts.push(members.len() as u32);
            let smaller = range.start + larger(range.len());
            let first = parts.partition_point(|part| part.start < range.start);
            for (class, part) in parts.iter().enumerate().skip(first) {
                if part.start >= range.end {
                    break;
                }
                let share = if part.start < smaller { Share::Larger } else { Share::Smaller };
                members.push(Member { class: class as Class, share });
            }
        }
        starts.push(members.len() as u32);
        Self { ranks: parts.into_iter().map(|part| vec![part]).collect(), members, starts }
    }

    /// Refines the ranks by one group after another.
    fn refined(groups: &Groups, used: &[GroupId], world: usize, larger: impl Fn(usize) -> usize) -> Self {
        // Class 0 are the ranks that are in no group.
        let mut class_of = vec![0_usize; world];
        let mut next = 1;
        for &group in used {
            let ranks = groups.ranks(group);
            let larger = larger(ranks.len());
            let mut refined: HashMap<(usize, bool), usize> = HashMap::new();
            for (position, &rank) in ranks.iter().enumerate() {
                let class = refined.entry((class_of[rank], position < larger)).or_insert_with(|| {
                    next += 1;
                    next - 1
                });
                class_of[rank] = *class;
            }
        }
        let mut numbers: HashMap<usize, usize> = HashMap::new();
        let mut ranks: Vec<Vec<Range<usize>>> = Vec::new();
        for (rank, &class) in class_of.iter().enumerate().filter(|&(_, &class)| class > 0) {
            let number = *numbers.entry(class).or_insert(ranks.len());
            if number == ranks.len() {
                ranks.push(Vec::new());
            }
            ranks[number].push(rank..rank + 1);
        }
        let (mut members, mut starts) = (Vec::new(), Vec::with_capacity(used.len() + 1));
        let mut listed = vec![usize::MAX; ranks.len()];
        for (slot, &group) in used.iter().enumerate() {
            starts.push(members.len() as u32);
            let list = groups.ranks(group);
            let larger = larger(list.len());
            for (position, rank) in list.iter().enumerate() {
                let class = numbers[&class_of[*rank]];
                let share = if position < larger { Share::Larger } else { Share::Smaller };
                if listed[class] != slot {
                    listed[class] = slot;
                    members.push(Member { class: class as Class, share });
                }
            }
        }
        starts.push(members.len() as u32);
        Self { ranks, members, starts }
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// How many ranks are in a class.
    pub(super) fn size(&self, class: usize) -> usize {
        self.ranks[class].iter().map(Range::len).sum()
    }

    #[inline]
    pub(super) fn members(&self, slot: Slot) -> &[Member] {
        let slot = slot as usize;
        &self.members[self.starts[slot] as usize..self.starts[slot + 1] as usize]
    }
}

//! Lists of ranks by number, and ranks that do the same thing.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use super::costs::Share;

/// The number of a list of ranks.
pub(super) type GroupId = u32;

/// Every list of ranks that was met, once.
#[derive(Debug, Default)]
pub(super) struct Groups {
    lists: Vec<Rc<[usize]>>,
    /// By group: its ranks where they follow each other.
    ranges: Vec<Option<Range<usize>>>,
    numbers: HashMap<Rc<[usize]>, GroupId>,
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

    pub(super) fn ranks(&self, group: GroupId) -> &Rc<[usize]> {
        &self.lists[group as usize]
    }

    /// The ranks where they follow each other.
    fn range(&self, group: GroupId) -> Option<Range<usize>> {
        self.ranges[group as usize].clone()
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
    /// By number of the group; empty for groups that are not in use.
    members: Vec<Vec<Member>>,
    /// Whether one class is in every group, with the larger share.
    pub(super) has_hub: bool,
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
            Some(ranges) => Self::of_ranges(used, &ranges, larger),
            None => Self::refined(groups, used, world, larger),
        }
    }

    /// Divides the ranks wherever a group or its larger shares begin or end.
    fn of_ranges(used: &[GroupId], ranges: &[Range<usize>], larger: impl Fn(usize) -> usize) -> Self {
        let borders = |range: &Range<usize>| [range.start, range.start + larger(range.len()), range.end];
        let mut borders: Vec<usize> = ranges.iter().flat_map(borders).collect();
        borders.sort_unstable();
        borders.dedup();
        let is_used = |part: &Range<usize>| ranges.iter().any(|range| range.contains(&part.start));
        let parts: Vec<Range<usize>> =
            borders.windows(2).map(|ends| ends[0]..ends[1]).filter(is_used).collect();
        let mut members = vec![Vec::new(); used.iter().max().map_or(0, |&group| group as usize + 1)];
        let mut is_hub = vec![true; parts.len()];
        for (&group, range) in used.iter().zip(ranges) {
            let smaller = range.start + larger(range.len());
            for (class, part) in parts.iter().enumerate() {
                let share = if part.start < smaller { Share::Larger } else { Share::Smaller };
                let is_in = range.contains(&part.start);
                if is_in {
                    members[group as usize].push(Member { class: class as Class, share });
                }
                is_hub[class] &= is_in && share == Share::Larger;
            }
        }
        let ranks = parts.into_iter().map(|part| vec![part]).collect();
        Self { ranks, members, has_hub: is_hub.contains(&true) }
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
        let mut members = vec![Vec::new(); used.iter().max().map_or(0, |&group| group as usize + 1)];
        let mut is_hub = vec![true; ranks.len()];
        let mut listed = vec![usize::MAX; ranks.len()];
        for &group in used {
            let list = groups.ranks(group);
            let larger = larger(list.len());
            let mut is_in = vec![false; ranks.len()];
            for (position, rank) in list.iter().enumerate() {
                let class = numbers[&class_of[*rank]];
                let share = if position < larger { Share::Larger } else { Share::Smaller };
                if listed[class] != group as usize {
                    listed[class] = group as usize;
                    members[group as usize].push(Member { class: class as Class, share });
                    is_in[class] = share == Share::Larger;
                }
            }
            is_hub.iter_mut().zip(is_in).for_each(|(hub, is_in)| *hub &= is_in);
        }
        Self { ranks, members, has_hub: is_hub.contains(&true) }
    }

    pub(super) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// How many ranks are in a class.
    pub(super) fn size(&self, class: usize) -> usize {
        self.ranks[class].iter().map(Range::len).sum()
    }

    pub(super) fn members(&self, group: GroupId) -> &[Member] {
        &self.members[group as usize]
    }
}

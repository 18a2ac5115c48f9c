//! Groups and classes of ranks. A *group* is a list of ranks that has an id: a grid of ranges of
//! samples and parts, whose number is 1 unless nodes are split. A *class* is a set of ranks that do
//! identical work. The *larger* shard of a batch that does not divide evenly has one
//! sample more than the *smaller* one.

use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::costs::ShardSize;

/// Id of a list of ranks: its index in [`Groups`].
pub(crate) type GroupId = u32;
/// Index of a group among those that one arrangement uses, which are in ascending order of their
/// ids.
pub(crate) type Slot = u32;

/// A list of consecutive ranks, ascending or descending.
#[derive(Debug, Clone)]
struct RankRange {
    ranks: Range<usize>,
    is_descending: bool,
}

impl RankRange {
    fn of(list: &[usize]) -> Option<Self> {
        let follow = |step: fn(usize) -> usize| list.windows(2).all(|pair| step(pair[0]) == pair[1]);
        let is_descending = list.len() > 1 && follow(|rank| rank.wrapping_sub(1));
        let first = if is_descending { list.last() } else { list.first() };
        let first = *first.filter(|_| is_descending || follow(|rank| rank + 1))?;
        Some(Self { ranks: first..first + list.len(), is_descending })
    }

    /// Returns the first `count` ranks of the list.
    fn first(&self, count: usize) -> Range<usize> {
        let Range { start, end } = self.ranks;
        if self.is_descending { end - count..end } else { start..start + count }
    }
}

/// All lists of ranks in use, each stored once.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    lists: Vec<Rc<[usize]>>,
    /// By group: its ranks if they are consecutive, ascending or descending.
    ranges: Vec<Option<RankRange>>,
    numbers: FxHashMap<Rc<[usize]>, GroupId>,
    /// Group by first rank and length, for ascending consecutive ranks.
    of_range: FxHashMap<(usize, usize), GroupId>,
    /// By group: its number of parts.
    parts: Vec<u32>,
    /// Group with several parts, by the group of the same ranks with one part and the number of
    /// parts.
    of_parts: FxHashMap<(GroupId, usize), GroupId>,
    /// By group: the group of the same ranks with one part.
    wholes: Vec<GroupId>,
}

impl Groups {
    /// Returns the id of a list of ranks, and stores the list if it is new. Lists of the same ranks
    /// in another order are other groups.
    pub(crate) fn id_of(&mut self, ranks: &[usize]) -> GroupId {
        if let Some(&known) = self.numbers.get(ranks) {
            return known;
        }
        let (ranks, number) = (Rc::<[usize]>::from(ranks), self.lists.len() as GroupId);
        self.lists.push(Rc::clone(&ranks));
        self.ranges.push(RankRange::of(&ranks));
        self.parts.push(1);
        self.wholes.push(number);
        self.numbers.insert(ranks, number);
        number
    }

    /// Returns the id of the list of `count` consecutive ranks from `start` on, ascending, and
    /// stores it if it is new.
    pub(crate) fn id_of_range(&mut self, start: usize, count: usize) -> GroupId {
        if let Some(&known) = self.of_range.get(&(start, count)) {
            return known;
        }
        let number = self.id_of(&(start..start + count).collect::<Vec<_>>());
        self.of_range.insert((start, count), number);
        number
    }

    /// Returns the id of the group with the ranks of a group with one part, in `parts` parts for
    /// each range of samples, and stores it if it is new. Their number is a multiple of `parts`.
    pub(crate) fn id_of_parts(&mut self, group: GroupId, parts: usize) -> GroupId {
        if parts == 1 {
            return group;
        }
        *self.of_parts.entry((group, parts)).or_insert_with(|| {
            self.lists.push(Rc::clone(&self.lists[group as usize]));
            self.ranges.push(self.ranges[group as usize].clone());
            self.parts.push(parts as u32);
            self.wholes.push(group);
            self.lists.len() as GroupId - 1
        })
    }

    /// Returns the number of parts of a group: ranks of each range of samples.
    pub(crate) fn parts(&self, group: GroupId) -> usize {
        self.parts[group as usize] as usize
    }

    /// Returns the group of the same ranks with one part.
    pub(crate) fn whole(&self, group: GroupId) -> GroupId {
        self.wholes[group as usize]
    }

    /// Returns the number of ranges of samples of a group.
    pub(crate) fn sample_ranges(&self, group: GroupId) -> usize {
        self.len(group) / self.parts(group)
    }

    /// Returns the ranks of a group, those with the first part first, then those with the second
    /// one, and so on.
    pub(crate) fn ranks_by_part(&self, group: GroupId) -> Vec<usize> {
        let (ranks, parts) = (self.ranks(group), self.parts(group));
        (0..parts).flat_map(|part| ranks.iter().skip(part).step_by(parts)).copied().collect()
    }

    /// Returns the ranks of a group, in the order of their samples.
    pub(crate) fn ranks(&self, group: GroupId) -> &Rc<[usize]> {
        &self.lists[group as usize]
    }

    /// Returns the number of groups that are stored.
    pub(crate) fn count(&self) -> usize {
        self.lists.len()
    }

    /// Returns the number of ranks of a group.
    pub(crate) fn len(&self, group: GroupId) -> usize {
        self.lists[group as usize].len()
    }
}

/// Index of a class: ranks that are in the same groups with the same shard sizes. They do the same
/// work at the same times, so one of them is evaluated for all.
pub(crate) type Class = u16;

/// A class whose ranks are in a group.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Member {
    /// Index of the class in [`Classes::ranks`].
    pub(crate) class: Class,
    /// Shard size of the ranks of the class in this group.
    pub(crate) shard_size: ShardSize,
}

/// The classes of the ranks in a set of groups.
#[derive(Debug)]
pub(crate) struct Classes {
    /// By class: its ranks, as disjoint ranges in ascending order.
    pub(crate) ranks: Vec<Vec<Range<usize>>>,
    /// Members of all groups, concatenated.
    members: Vec<Member>,
    /// By slot: the index of its first member; then the total number of members.
    starts: Vec<u32>,
}

impl Classes {
    /// Computes the classes of the ranks in the groups `used`; ranks in no group are in no class.
    /// `world` is the number of all ranks. `larger` returns, for a number of ranges of samples, the
    /// number of ranges at the start that are the larger shard. O(groups^2) if the ranks of each
    /// group are consecutive, otherwise O(groups x ranks).
    pub(crate) fn new(
        groups: &Groups,
        used: &[GroupId],
        world: usize,
        larger: impl Fn(usize) -> usize,
    ) -> Self {
        let larger = |group| larger(groups.sample_ranges(group)) * groups.parts(group);
        let range = |&group: &GroupId| {
            groups.ranges[group as usize].as_ref().map(|range| (&range.ranks, range.first(larger(group))))
        };
        let ranges: Option<Vec<(&Range<usize>, Range<usize>)>> = used.iter().map(range).collect();
        match ranges {
            Some(ranges) => Self::of_ranges(&ranges),
            None => Self::refined(groups, used, world, larger),
        }
    }

    /// Splits the ranks wherever a group or its larger shards begin or end. `ranges` has the ranks
    /// of each group, and those with the larger shard.
    fn of_ranges(ranges: &[(&Range<usize>, Range<usize>)]) -> Self {
        let mut borders = Vec::with_capacity(4 * ranges.len());
        for (ranks, larger) in ranges {
            borders.extend([ranks.start, larger.start, larger.end, ranks.end]);
        }
        borders.sort_unstable();
        borders.dedup();
        let is_used = |part: &Range<usize>| ranges.iter().any(|(ranks, _)| ranks.contains(&part.start));
        let parts: Vec<Range<usize>> =
            borders.windows(2).map(|ends| ends[0]..ends[1]).filter(is_used).collect();
        let (mut members, mut starts) = (Vec::new(), Vec::with_capacity(ranges.len() + 1));
        for (ranks, larger) in ranges {
            starts.push(members.len() as u32);
            let first = parts.partition_point(|part| part.start < ranks.start);
            for (class, part) in parts.iter().enumerate().skip(first) {
                if part.start >= ranks.end {
                    break;
                }
                let shard_size =
                    if larger.contains(&part.start) { ShardSize::Larger } else { ShardSize::Smaller };
                members.push(Member { class: class as Class, shard_size });
            }
        }
        starts.push(members.len() as u32);
        Self { ranks: parts.into_iter().map(|part| vec![part]).collect(), members, starts }
    }

    /// Refines a partition of the ranks by each group. `larger` returns the number of ranks at the
    /// start of a group that have the larger shard.
    fn refined(groups: &Groups, used: &[GroupId], world: usize, larger: impl Fn(GroupId) -> usize) -> Self {
        // Class 0 has the ranks that are in no group.
        let mut class_of = vec![0_usize; world];
        let mut next = 1;
        for &group in used {
            let ranks = groups.ranks(group);
            let larger = larger(group);
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
            let larger = larger(group);
            for (position, rank) in list.iter().enumerate() {
                let class = numbers[&class_of[*rank]];
                let shard_size = if position < larger { ShardSize::Larger } else { ShardSize::Smaller };
                if listed[class] != slot {
                    listed[class] = slot;
                    members.push(Member { class: class as Class, shard_size });
                }
            }
        }
        starts.push(members.len() as u32);
        Self { ranks, members, starts }
    }

    /// Returns the number of classes.
    pub(crate) fn len(&self) -> usize {
        self.ranks.len()
    }

    /// Returns the number of ranks of a class.
    pub(crate) fn size(&self, class: usize) -> usize {
        self.ranks[class].iter().map(Range::len).sum()
    }

    /// Returns the classes whose ranks are in the group of a slot, each once. A slot is an index in
    /// `used` of [`new`](Self::new).
    #[inline]
    pub(crate) fn members(&self, slot: Slot) -> &[Member] {
        let slot = slot as usize;
        &self.members[self.starts[slot] as usize..self.starts[slot + 1] as usize]
    }
}

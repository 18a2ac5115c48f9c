//! Lists of ranks on which the nodes of a chain run, and the costs of moving between them.
//!
//! A *segment* is a range of consecutive ranks that the model does not distinguish. A *place* is
//! the index of a node in topological order. The *larger* shard of a batch that does not divide
//! evenly has one sample more than the *smaller* one.

use std::ops::Range;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::steps::ChainSteps;
use crate::NodeId;
use crate::evaluator::Evaluator;
use crate::groups::GroupId;

/// Maximum number of segments. With at most this number of ranks, each segment is one rank.
pub(super) const MAX_SEGMENTS: usize = 16;

/// Index of a rank list in [`RankLists`].
pub(super) type ListId = u32;

/// Maximum number of sublists of a list that are all tried.
const MAX_CHOICES: usize = 15;
/// Maximum number of ranks of a list that are exchanged, and of other ranks that they are exchanged
/// for.
const MAX_EXCHANGED: usize = 8;
/// As `MAX_EXCHANGED`, if segments have several ranks.
const MAX_EXCHANGED_SEGMENTS: usize = 2;

/// Ranks in ascending order, on which consecutive nodes of a chain run.
#[derive(Debug)]
pub(super) struct RankList {
    /// Id of the list in the evaluator.
    pub(super) group: GroupId,
    /// The ranks, ascending.
    pub(super) ranks: Rc<[usize]>,
    /// Index of the number of ranks in [`RankLists::counts`], or `None` if it is not among them.
    pub(super) count: Option<usize>,
    /// Number of ranks with the larger shard, the first ones.
    larger: usize,
    /// Segments with ranks of the list: bit i is set for segment i.
    pub(super) mask: u16,
    /// Segments without a rank that has the larger shard, as a mask. Segments outside the list are
    /// set too.
    pub(super) smaller: u16,
}

/// Cost of moving the output of a node from one list to another and its gradient back.
#[derive(Debug, Clone, Copy)]
pub(super) struct TransferCost {
    /// Sum of both durations, microseconds.
    pub(super) time_us: f64,
    /// GPU time of all ranks of both lists, which wait for it, GPU-microseconds.
    pub(super) gpu_us: f64,
}

/// Cost of the all-reduces of the gradients of consecutive nodes on the same list.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit is part of each name")]
pub(super) struct AllReduceCost {
    /// Duration of the backward steps of the nodes, microseconds.
    pub(super) backward_us: f64,
    /// Time by which the all-reduces of full buckets end after the backward steps, at least 0,
    /// microseconds. The bucket of the first node is not included. The transfer of the gradient of
    /// the first node's input waits for this time.
    pub(super) delay_us: f64,
    /// Duration of the all-reduce of the first node's bucket, microseconds; 0 if there is none.
    pub(super) last_us: f64,
    /// Duration of the updates of the nodes in that bucket, microseconds.
    pub(super) last_update_us: f64,
    /// Sum of the durations of all all-reduces, microseconds.
    pub(super) reduces_us: f64,
}

/// All lists in use, each of some of the first ranks.
pub(super) struct RankLists {
    /// GPU counts of the search, ascending.
    pub(super) counts: Vec<usize>,
    /// Number of ranks that lists can use, the first ones.
    pub(super) gpus: usize,
    all: Vec<RankList>,
    by_group: FxHashMap<GroupId, ListId>,
    /// Sublists by list and count.
    chosen: FxHashMap<(ListId, usize), Vec<ListId>>,
    /// By list: the lists that differ from it by a rank.
    neighbours: FxHashMap<ListId, Vec<ListId>>,
    moving: FxHashMap<(u32, ListId, ListId), TransferCost>,
    /// By first node, end and list; `None` if there are no gradients.
    reducing: FxHashMap<(u32, u32, ListId), Option<AllReduceCost>>,
    /// By node: the first node whose output takes as long to move between two ranks. In this model
    /// it then takes as long between all lists.
    alike: Vec<u32>,
}

impl RankLists {
    /// Creates an empty collection for the ascending GPU counts `counts`, without ranks.
    /// [`use_first`](Self::use_first) sets the number of ranks.
    pub(super) fn new(evaluator: &Evaluator<'_>, counts: &[usize]) -> Self {
        let mut first = FxHashMap::default();
        let nodes = evaluator.problem().nodes.len() as u32;
        let like = |node: u32| {
            let time_us = evaluator.costs().transfer(NodeId(node as usize), &[0], &[1]);
            *first.entry(time_us.to_bits()).or_insert(node)
        };
        Self {
            alike: if evaluator.problem().gpus > 1 { (0..nodes).map(like).collect() } else { Vec::new() },
            counts: counts.to_vec(),
            gpus: 0,
            all: Vec::new(),
            by_group: FxHashMap::default(),
            chosen: FxHashMap::default(),
            neighbours: FxHashMap::default(),
            moving: FxHashMap::default(),
            reducing: FxHashMap::default(),
        }
    }

    /// Sets the number of ranks to `gpus`, which is larger than before. Known lists stay; their
    /// segments are computed again.
    pub(super) fn use_first(&mut self, gpus: usize) {
        self.gpus = gpus;
        self.neighbours.clear();
        let segments = self.segments();
        for list in &mut self.all {
            list.mask = mask(&list.ranks, segments, gpus);
            list.smaller = !mask(&list.ranks[..list.larger], segments, gpus);
        }
    }

    /// Returns the number of GPU counts that are at most the number of ranks.
    pub(super) fn usable(&self) -> usize {
        self.counts.partition_point(|&count| count <= self.gpus)
    }

    /// Returns the number of segments: the number of ranks, at most [`MAX_SEGMENTS`].
    pub(super) fn segments(&self) -> usize {
        self.gpus.min(MAX_SEGMENTS)
    }

    /// Returns the list with an id.
    pub(super) fn get(&self, list: ListId) -> &RankList {
        &self.all[list as usize]
    }

    /// Returns the id of the list of `ranks`, which are ascending. Adds it if it is new.
    pub(super) fn of(&mut self, evaluator: &mut Evaluator<'_>, ranks: &[usize]) -> ListId {
        let group = evaluator.group(ranks);
        if let Some(&list) = self.by_group.get(&group) {
            return list;
        }
        let larger = evaluator.costs().ranks_with_larger_shard(ranks.len()).min(ranks.len());
        let mask_of = |ranks: &[usize]| mask(ranks, self.segments(), self.gpus);
        let list = self.all.len() as ListId;
        self.all.push(RankList {
            group,
            ranks: Rc::clone(evaluator.ranks(group)),
            count: self.counts.binary_search(&ranks.len()).ok(),
            larger,
            mask: mask_of(ranks),
            smaller: !mask_of(&ranks[..larger]),
        });
        self.by_group.insert(group, list);
        list
    }

    /// Returns the first node whose output takes as long to move between two ranks as that of
    /// `node`.
    pub(super) fn same_transfer_as(&self, node: u32) -> u32 {
        self.alike.get(node as usize).copied().unwrap_or(node)
    }

    /// Returns the cost of moving the output of node `producer` from one list to another and its
    /// gradient back. It is cached.
    pub(super) fn moving(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        producer: u32,
        from: ListId,
        to: ListId,
    ) -> TransferCost {
        let producer = self.same_transfer_as(producer);
        if let Some(&known) = self.moving.get(&(producer, from, to)) {
            return known;
        }
        let (here, there) = (self.get(from), self.get(to));
        let time_us = both_us(evaluator, producer, here.group, there.group);
        let all = count_of_union(&here.ranks, &there.ranks);
        let moving = TransferCost { time_us, gpu_us: all as f64 * time_us };
        self.moving.insert((producer, from, to), moving);
        moving
    }

    /// Returns the cost of the all-reduces of the gradients of the nodes at the places `nodes`, all
    /// on `list`. `None` if there is nothing to reduce, the list has one rank, or a node cannot run
    /// on it. It is cached.
    pub(super) fn reducing(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        steps: &ChainSteps,
        nodes: &Range<usize>,
        list: ListId,
    ) -> Option<AllReduceCost> {
        let key = (nodes.start as u32, nodes.end as u32, list);
        if let Some(&known) = self.reducing.get(&key) {
            return known;
        }
        let reducing = self.reduced(evaluator, steps, nodes, list);
        self.reducing.insert(key, reducing);
        reducing
    }

    fn reduced(
        &self,
        evaluator: &mut Evaluator<'_>,
        steps: &ChainSteps,
        nodes: &Range<usize>,
        list: ListId,
    ) -> Option<AllReduceCost> {
        let RankList { group, ref ranks, count, .. } = *self.get(list);
        let count = count.filter(|_| ranks.len() > 1)?;
        let backward_us = |from: usize| steps.cost_on(count, &(from..nodes.end)).map(|step| step.backward_us);
        let all_us = backward_us(nodes.start)?;
        let (mut busy_us, mut last, mut reduces_us) = (0.0, (0.0, 0.0), 0.0);
        for (bucket, bytes, is_full) in steps.buckets(nodes) {
            let reduce_us = evaluator.reduce_us(bytes, group);
            reduces_us += reduce_us;
            // A bucket that is full with the first node's gradient is reduced after the gradients
            // of samples, as one that is not full.
            if is_full && bucket.start > nodes.start {
                busy_us = f64::max(busy_us, backward_us(bucket.start)?) + reduce_us;
            } else {
                last = (reduce_us, steps.cost_on(count, &bucket)?.update_us);
            }
        }
        let delay_us = (busy_us - all_us).max(0.0);
        let (last_us, last_update_us) = last;
        let is_any = delay_us > 0.0 || last_us > 0.0;
        is_any.then_some(AllReduceCost { backward_us: all_us, delay_us, last_us, last_update_us, reduces_us })
    }

    /// Returns lists of `count` of the ranks of `list`, in ascending order of the time to move the
    /// output of node `producer` to them and its gradient back. The first one has the minimum time.
    /// A later one is only returned if it starts at a later rank than all before, as such ranks may
    /// have the smaller shards. The result is cached for all producers. Of a large number of
    /// sublists only a selection is compared.
    pub(super) fn sublists(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        producer: u32,
        list: ListId,
        count: usize,
    ) -> &[ListId] {
        if !self.chosen.contains_key(&(list, count)) {
            let from = self.get(list);
            let (group, choices) = (from.group, combinations(&from.ranks, count));
            let mut timed: Vec<(f64, Vec<usize>)> = choices
                .into_iter()
                .map(|choice| {
                    let to = evaluator.group(&choice);
                    (both_us(evaluator, producer, group, to), choice)
                })
                .collect();
            timed.sort_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(&a.1)));
            let mut first = None;
            timed.retain(|(_, choice)| {
                let is_later = choice.first() > first.as_ref();
                first = first.max(choice.first().copied());
                is_later
            });
            let lists = timed.into_iter().map(|(_, choice)| self.of(evaluator, &choice)).collect();
            self.chosen.insert((list, count), lists);
        }
        &self.chosen[&(list, count)]
    }

    /// Returns the lists with the ranks of the shorter list and the first other ranks of the longer
    /// one: one with one rank more than the shorter list, and one with one rank less than the
    /// longer list. Empty if no length is strictly between.
    pub(super) fn between(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        first: ListId,
        second: ListId,
    ) -> Vec<ListId> {
        let [first, second] = [first, second].map(|list| Rc::clone(&self.get(list).ranks));
        let (few, many) = if first.len() < second.len() { (first, second) } else { (second, first) };
        let mut counts = vec![few.len() + 1, many.len() - 1];
        counts.dedup();
        counts.retain(|count| (few.len() + 1..many.len()).contains(count));
        let list = |count: usize| {
            let others = many.iter().filter(|rank| few.binary_search(rank).is_err());
            let mut ranks: Vec<usize> = few.iter().chain(others).copied().take(count).collect();
            ranks.sort_unstable();
            self.of(evaluator, &ranks)
        };
        counts.into_iter().map(list).collect()
    }

    /// Returns the lists that differ from `list` by one rank that is added, removed or replaced. Of
    /// a large number of ranks only evenly spaced ones are exchanged. The result is cached.
    pub(super) fn neighbours(&mut self, evaluator: &mut Evaluator<'_>, list: ListId) -> &[ListId] {
        if !self.neighbours.contains_key(&list) {
            let ranks = Rc::clone(&self.get(list).ranks);
            let others = other_ranks(&ranks, self.gpus);
            let maximum = if self.gpus > MAX_SEGMENTS { MAX_EXCHANGED_SEGMENTS } else { MAX_EXCHANGED };
            let others = evenly_spaced(&others, maximum);
            let without = |rank: usize| ranks.iter().copied().filter(move |&other| other != rank);
            let with = |ranks: &mut dyn Iterator<Item = usize>, rank| {
                let mut ranks: Vec<usize> = ranks.chain([rank]).collect();
                ranks.sort_unstable();
                ranks
            };
            let mut neighbours: Vec<Vec<usize>> = Vec::new();
            for &rank in &evenly_spaced(&ranks, maximum) {
                neighbours.extend(others.iter().map(|&other| with(&mut without(rank), other)));
                neighbours.extend((ranks.len() > 1).then(|| without(rank).collect()));
            }
            neighbours.extend(others.iter().map(|&other| with(&mut ranks.iter().copied(), other)));
            let neighbours = neighbours.iter().map(|ranks| self.of(evaluator, ranks));
            let neighbours: Vec<ListId> = neighbours.collect();
            self.neighbours.insert(list, neighbours);
        }
        &self.neighbours[&list]
    }
}

/// Returns the ranks of a segment, if `gpus` ranks are divided into `segments` segments.
pub(super) fn ranks_of_segment(segment: usize, segments: usize, gpus: usize) -> Range<usize> {
    (segment * gpus).div_ceil(segments)..((segment + 1) * gpus).div_ceil(segments)
}

/// Returns those of the first `gpus` ranks that are not in an ascending list of some of them.
pub(super) fn other_ranks(ranks: &[usize], gpus: usize) -> Vec<usize> {
    let mut listed = ranks.iter().peekable();
    (0..gpus).filter(|rank| listed.next_if_eq(&rank).is_none()).collect()
}

/// Returns the number of ranks that are in one or both of two ascending lists.
fn count_of_union(first: &[usize], second: &[usize]) -> usize {
    let (mut at, mut shared) = (0, 0);
    for &rank in second {
        while at < first.len() && first[at] < rank {
            at += 1;
        }
        shared += usize::from(first.get(at) == Some(&rank));
    }
    first.len() + second.len() - shared
}

/// Returns the mask of the segments of ascending ranks.
fn mask(ranks: &[usize], segments: usize, gpus: usize) -> u16 {
    let has_rank = |&segment: &usize| {
        let in_segment = ranks_of_segment(segment, segments, gpus);
        let first = ranks.partition_point(|&rank| rank < in_segment.start);
        ranks.get(first).is_some_and(|&rank| rank < in_segment.end)
    };
    (0..segments).filter(has_rank).fold(0, |mask, segment| mask | 1 << segment)
}

/// Returns at most `maximum` ranks, evenly spaced.
fn evenly_spaced(ranks: &[usize], maximum: usize) -> Vec<usize> {
    let many = ranks.len().min(maximum);
    (0..many).map(|index| ranks[index * ranks.len() / many]).collect()
}

/// Returns sublists of `count` ranks: all of them, or a selection if there are many.
fn combinations(ranks: &[usize], count: usize) -> Vec<Vec<usize>> {
    let number =
        (0..count).fold(1_usize, |number, index| number.saturating_mul(ranks.len() - index) / (index + 1));
    if number <= MAX_CHOICES && ranks.len() <= MAX_SEGMENTS {
        let all = (0..1_u32 << ranks.len()).filter(|bits| bits.count_ones() as usize == count);
        let is_in = |bits: u32, place: usize| bits >> place & 1 == 1;
        return all
            .map(|bits| {
                (0..ranks.len()).filter(|&place| is_in(bits, place)).map(|place| ranks[place]).collect()
            })
            .collect();
    }
    let all = ranks.len();
    let places: [&dyn Fn(usize) -> usize; 4] = [
        &|index| ((2 * index + 1) * all).div_ceil(2 * count) - 1,
        &|index| index * all / count,
        &|index| ((index + 1) * all).div_ceil(count) - 1,
        &|index| all - count + index,
    ];
    places.map(|place| (0..count).map(|index| ranks[place(index)]).collect()).into()
}

fn both_us(evaluator: &Evaluator<'_>, producer: u32, from: GroupId, to: GroupId) -> f64 {
    let (from, to) = (evaluator.ranks(from), evaluator.ranks(to));
    evaluator.costs().round_trip(NodeId(producer as usize), from, to)
}

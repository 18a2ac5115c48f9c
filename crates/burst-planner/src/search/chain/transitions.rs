//! Transitions of dynamic programming along a chain: the lists of ranks that the next nodes can be
//! on. A *segment* is a range of consecutive ranks that the model does not distinguish.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::front::Label;
use super::lists::{ListId, RankLists, TransferCost, other_ranks, ranks_of_segment};
use crate::evaluator::Evaluator;

/// A list of ranks, with the cost of moving there from the list of the nodes before.
#[derive(Debug, Clone, Copy)]
pub(super) struct Transition {
    /// The list that the next nodes are on.
    pub(super) to: ListId,
    /// The list that its ranks were chosen from; `to` if they were chosen from all ranks.
    pub(super) source_list: ListId,
    /// Index of its number of ranks among the GPU counts of [`RankLists`].
    pub(super) count: usize,
    /// Segments of its ranks: bit i is set for segment i.
    pub(super) mask: u16,
    /// Cost of moving samples to it and gradients back, or `None` if the list is that of the nodes
    /// before.
    pub(super) moving: Option<TransferCost>,
}

/// A list, the list that it was chosen from, and the index of its number of ranks among the counts.
type Target = (ListId, ListId, usize);

/// The least busy segment outside a list; `None` if there is none.
type FreeSegment = Option<usize>;

/// Transitions between lists of the first ranks, with a cache.
pub(super) struct Transitions<'l> {
    /// All rank lists in use.
    pub(super) lists: &'l mut RankLists,
    /// Number of GPU counts that are at most the number of ranks.
    pub(super) counts: usize,
    targets: FxHashMap<(ListId, ListId, FreeSegment), Vec<Target>>,
    producer: u32,
    /// Transitions by producer, with their costs.
    known: FxHashMap<(u32, ListId, ListId, FreeSegment), Vec<Transition>>,
}

impl<'l> Transitions<'l> {
    /// Creates an empty cache of transitions for the current number of ranks of `lists`.
    pub(super) fn new(lists: &'l mut RankLists) -> Self {
        Self {
            counts: lists.usable(),
            lists,
            targets: FxHashMap::default(),
            producer: 0,
            known: FxHashMap::default(),
        }
    }

    /// Returns by index of the GPU count the list of that number of first ranks.
    pub(super) fn first(&mut self, evaluator: &mut Evaluator<'_>) -> Vec<ListId> {
        let first = |count: usize| -> Vec<usize> { (0..count).collect() };
        (0..self.counts).map(|count| self.lists.of(evaluator, &first(self.lists.counts[count]))).collect()
    }

    /// Sets the index of the node whose output is moved in the following transitions.
    pub(super) fn set_producer(&mut self, producer: u32) {
        self.producer = self.lists.same_transfer_as(producer);
    }

    /// Returns the transitions from the list of a label: to its ranks or a part of them, to more
    /// ranks, and to other ranks, those with the least work first.
    pub(super) fn from(&mut self, evaluator: &mut Evaluator<'_>, label: &Label) -> &[Transition] {
        let free = self.free_segments(label);
        let first = free.first().copied();
        let key = (label.list, label.source_list, first);
        let known = (self.producer, label.list, label.source_list, first);
        if !self.known.contains_key(&known) {
            if !self.targets.contains_key(&key) {
                let targets = self.targets(evaluator, label, &free);
                self.targets.insert(key, targets);
            }
            let (lists, producer) = (&mut *self.lists, self.producer);
            let way = |&(to, source_list, count): &Target| {
                let moving = (to != label.list).then(|| lists.moving(evaluator, producer, label.list, to));
                Transition { to, source_list, count, mask: lists.get(to).mask, moving }
            };
            let ways = self.targets[&key].iter().map(way).collect();
            self.known.insert(known, ways);
        }
        &self.known[&known]
    }

    /// Returns the segments outside the label's list in cyclic order, the least busy one first.
    fn free_segments(&self, label: &Label) -> Vec<usize> {
        let mask = self.lists.get(label.list).mask;
        let segments = self.lists.segments();
        let is_free = |segment: &usize| mask >> segment & 1 == 0;
        let extra_us = |&segment: &usize| label.cost.extra_us(segment);
        let free = (0..segments).filter(is_free);
        let first = free.min_by(|a, b| extra_us(a).total_cmp(&extra_us(b))).unwrap_or(0);
        (first..segments).chain(0..first).filter(is_free).collect()
    }

    fn targets(&mut self, evaluator: &mut Evaluator<'_>, label: &Label, free: &[usize]) -> Vec<Target> {
        let (gpus, segments) = (self.lists.gpus, self.lists.segments());
        let in_segment = |&segment: &usize| ranks_of_segment(segment, segments, gpus);
        let idle: Vec<usize> = free.iter().flat_map(in_segment).collect();
        let here = Rc::clone(&self.lists.get(label.list).ranks);
        let others = other_ranks(&here, gpus);
        let source_list = self.lists.get(label.source_list).ranks.len();
        let of = |evaluator: &mut Evaluator<'_>, lists: &mut RankLists, mut ranks: Vec<usize>| {
            ranks.sort_unstable();
            lists.of(evaluator, &ranks)
        };
        let mut targets = Vec::new();
        for index in 0..self.counts {
            let count = self.lists.counts[index];
            if count == here.len() {
                targets.push((label.list, label.source_list, index));
            } else if count < here.len() {
                let chosen = self.lists.sublists(evaluator, self.producer, label.list, count);
                targets.extend(chosen.iter().map(|&to| (to, label.list, index)));
            } else if count == source_list {
                targets.push((label.source_list, label.source_list, index));
            } else {
                let wider = here.iter().chain(&others).copied().take(count).collect();
                let to = of(evaluator, self.lists, wider);
                targets.push((to, to, index));
            }
            if count <= idle.len() {
                let to = of(evaluator, self.lists, idle[..count].to_vec());
                targets.push((to, to, index));
            }
        }
        targets
    }
}

//! Labels of the first nodes of a chain: lower bounds of their times, and their pruning.
//!
//! A *place* is the index of a node in topological order, an *option* a GPU count of a node. The
//! *first node* is the first one with a gradient. The *cycle* of a rank is the time from the start
//! of its first step of an iteration to the end of its last update, on whichever ranks the steps in
//! between run. The *anchor* is the node with the longest update. The *larger* shard of a batch
//! that does not divide evenly has one sample more than the *smaller* one.

use super::exposure::{Exposure, FirstNodeRanks};
use super::first_run::FirstRun;

/// Number of previous labels, by time, that a label is compared with.
const COMPARED_LABELS: usize = 128;

/// Lower bounds for the nodes up to some place and one option of the last of them. Times are in
/// microseconds.
///
/// `first_us`, `longest_us` and `shared_us` are cycles of ranks of the first node, `anchor_us` is
/// the cycle of a rank of the anchor. All cycles contain the same steps forward and backward, and
/// end with updates.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Label {
    /// Minimum cycle of the first node's ranks, with the updates that all of them have.
    pub(super) first_us: f64,
    /// Cycle of the first node's rank with the largest sum of work after its backward steps.
    pub(super) longest_us: f64,
    /// Cycle of the first node's ranks with the updates that the last node's ranks have in common,
    /// if these are among the first node's.
    pub(super) shared_us: f64,
    /// Cycle of a rank of the anchor; 0 as long as no node necessarily shares a rank with it.
    pub(super) anchor_us: f64,
    /// GPU time without the [exposure](Self::exposure), GPU-microseconds.
    pub(super) gpu_us: f64,
    /// Additional GPU time in which the first node's ranks only communicate.
    pub(super) exposure: Exposure,
    /// GPU count of the first node, while it limits the positions of later nodes; 0 if any count is
    /// possible or it no longer matters.
    pub(super) first_gpus: f64,
    /// Time by which the forward and backward steps of the consecutive nodes on the first node's
    /// list are shorter with the smaller shard than with the larger one.
    pub(super) less_us: f64,
    /// Number of all ranks that are not on the first node's list, and number of all ranks that do
    /// not have the larger shard of that list.
    pub(super) outside_first: (f64, f64),
    /// Of the ranks of the list that the last node's ranks were chosen from, the same two numbers.
    pub(super) outside_first_in_source: (f64, f64),
    /// Kind of the first node's ranks that are in the last node's list.
    pub(super) first_node_ranks: FirstNodeRanks,
    /// Index in the list of all kept labels: of this label once it is kept, before that of the
    /// label that it extends.
    pub(super) entry: u32,
}

/// State of the cycle of a rank of the anchor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// No node so far necessarily shares a rank with the anchor.
    Before,
    /// A node shares a rank with the anchor. That rank can have had the smaller shard of all nodes
    /// since, as no ranks have waited for each other.
    Apart,
    /// The cycle contains the same steps as that of the first node's ranks.
    Joined,
}

/// Position of the last node's list of ranks relative to the first node's list.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum ListPosition {
    /// All nodes from the first one on are on the first node's list.
    First,
    /// The last node is on another list, and no later node with gradients is on the first node's
    /// list.
    Others,
    /// The last node is on another list, and a later node with gradients is on the first node's
    /// list.
    Leaving,
    /// A node after nodes on other lists is on the first node's list again.
    Back,
}

/// All combinations of [`Phase`] and [`ListPosition`]. The index is 4 x phase + position.
pub(super) const STATES: [(Phase, ListPosition); 12] = {
    use ListPosition::{Back, First, Leaving, Others};
    use Phase::{Apart, Before, Joined};
    [
        (Before, First),
        (Before, Others),
        (Before, Leaving),
        (Before, Back),
        (Apart, First),
        (Apart, Others),
        (Apart, Leaving),
        (Apart, Back),
        (Joined, First),
        (Joined, Others),
        (Joined, Leaving),
        (Joined, Back),
    ]
};

impl Label {
    /// Adds the steps of a node to all cycles, an update to those of the first node's ranks, and
    /// GPU time in GPU-microseconds.
    pub(super) fn add(&mut self, steps_us: f64, update_us: f64, gpu_us: f64) {
        self.first_us += steps_us + update_us;
        self.shared_us += steps_us + update_us;
        self.anchor_us += steps_us;
        // The cycle can end with an all-reduce, during which updates run.
        self.longest_us = self.first_us.max(self.longest_us + steps_us);
        self.gpu_us += gpu_us;
    }

    /// Returns the GPU time with the exposure, GPU-microseconds.
    pub(super) fn all_gpu_us(&self) -> f64 {
        self.gpu_us + self.exposure.exposed_us()
    }

    /// Returns the lower bound of the iteration time: the longer of the cycles of the first node's
    /// ranks and of the anchor's rank, microseconds.
    pub(super) fn time_us(&self) -> f64 {
        self.longest_us.max(self.anchor_us)
    }

    /// Returns whether no component is smaller than the other one's, whichever nodes follow.
    fn is_dominated(&self, other: &Self) -> bool {
        self.longest_us >= other.longest_us
            && self.gpu_us >= other.gpu_us
            && self.first_node_ranks == other.first_node_ranks
            && (self.exposure.is_at_least(&other.exposure)
                || self.gpu_us >= other.gpu_us + other.exposure.max_exposed_us())
            && self.anchor_us >= other.anchor_us
            && self.first_us >= other.first_us
            && self.shared_us >= other.shared_us
            && self.less_us <= other.less_us
            && is_within(self.outside_first, other.outside_first)
            && is_within(self.outside_first_in_source, other.outside_first_in_source)
            && (other.first_gpus <= 0.0 || self.first_gpus.total_cmp(&other.first_gpus).is_eq())
    }

    /// Returns whether neither the time nor the GPU time so far is smaller than the other one's.
    fn is_dominated_so_far(&self, other: &Self) -> bool {
        self.time_us() >= other.time_us() && self.gpu_us >= other.gpu_us
    }

    /// Lowers each component to at most the other one's.
    fn merge(&mut self, other: &Self) {
        self.first_us = self.first_us.min(other.first_us);
        self.longest_us = self.longest_us.min(other.longest_us);
        self.shared_us = self.shared_us.min(other.shared_us);
        self.anchor_us = self.anchor_us.min(other.anchor_us);
        self.gpu_us = self.gpu_us.min(other.gpu_us);
        self.exposure.merge(&other.exposure);
        if self.first_node_ranks != other.first_node_ranks {
            self.first_node_ranks = FirstNodeRanks::Unknown;
        }
        if self.first_gpus.total_cmp(&other.first_gpus).is_ne() {
            self.first_gpus = 0.0;
        }
        self.less_us = self.less_us.max(other.less_us);
        self.outside_first = largest(self.outside_first, other.outside_first);
        self.outside_first_in_source = largest(self.outside_first_in_source, other.outside_first_in_source);
    }

    /// Returns the label at the first node that is not on the first node's list. `to` is the new
    /// position, `run` has the bounds for the nodes before.
    pub(super) fn leaving_first_list(mut self, to: ListPosition, run: &FirstRun) -> Self {
        if to == ListPosition::Others {
            // `shared_us` has no updates before that.
            self.longest_us = self.longest_us.max(self.shared_us + run.tail_us);
            self.exposure = Exposure::new(
                run.exposed_us,
                self.first_gpus,
                self.outside_first.1 - self.outside_first.0,
                run.earlier_us,
            );
            self.first_gpus = 0.0;
        }
        self.shared_us = self.first_us;
        self
    }

    /// Returns the label after all ranks have waited for each other: no cycle is shorter than that
    /// of the first node's ranks.
    pub(super) fn joined(self) -> Self {
        Self { anchor_us: self.anchor_us.max(self.first_us), ..self }
    }
}

fn is_within(pair: (f64, f64), other: (f64, f64)) -> bool {
    pair.0 <= other.0 && pair.1 <= other.1
}

fn largest(pair: (f64, f64), other: (f64, f64)) -> (f64, f64) {
    (pair.0.max(other.0), pair.1.max(other.1))
}

/// Rule by which labels are pruned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pruning {
    /// A label is pruned if another one dominates it whichever nodes follow. The minimum remains a
    /// lower bound.
    Exact,
    /// A label is pruned if another one dominates it so far. This proposes arrangements, but gives
    /// no lower bound.
    Heuristic,
}

/// Sets `kept` to the labels of `front` that the rule `pruning` keeps. If these are more than
/// `maximum`, neighbours in time are merged into labels that are no larger than both. Returns
/// whether some were merged.
pub(super) fn prune(front: &[Label], kept: &mut Vec<Label>, maximum: usize, pruning: Pruning) -> bool {
    let (is_no_better, looked_at): (fn(&Label, &Label) -> bool, usize) = match pruning {
        Pruning::Exact => (Label::is_dominated, COMPARED_LABELS),
        Pruning::Heuristic => (Label::is_dominated_so_far, 1),
    };
    // Labels are large, so their indices are sorted.
    let keys = front.iter().zip(0..).map(|(label, place)| (label.time_us(), label.gpu_us, place));
    let mut order: Vec<(f64, f64, u32)> = keys.collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    // If one time follows from the other, the last label is the one that can dominate.
    let mut places: Vec<u32> = Vec::with_capacity(front.len());
    for (_, _, place) in order {
        let label = &front[place as usize];
        let mut latest = places.iter().rev().take(looked_at).map(|&place| &front[place as usize]);
        if !latest.any(|better| is_no_better(label, better)) {
            places.push(place);
        }
    }
    // Number of neighbours that are merged: the labels are halved until they are few enough.
    let mut at_once = 1;
    while places.len().div_ceil(at_once) > maximum {
        at_once *= 2;
    }
    kept.clear();
    kept.extend(places.chunks(at_once).map(|places| {
        let mut merged = front[places[0] as usize];
        places[1..].iter().for_each(|&place| merged.merge(&front[place as usize]));
        merged
    }));
    at_once > 1
}

//! Labels of the first nodes of a chain: lower bounds of their times, and their pruning.

use super::exposure::{Exposure, FirstNodeRanks};
use super::first_run::FirstRun;

/// Number of previous labels, by time, that a label is compared with.
const COMPARED_LABELS: usize = 128;

/// Lower bounds for the nodes up to some place, with one of the last node's options.
///
/// Times are of cycles of the first node's ranks, and of the anchor's rank. All cycles contain the
/// same steps forward and backward, and end with updates.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Label {
    /// With the updates that all ranks of the first node have.
    pub(super) first_us: f64,
    /// With the updates of the rank with the most remaining work.
    pub(super) longest_us: f64,
    /// With the updates that the last node's ranks have in common, if they are of the first node's
    /// ranks.
    pub(super) shared_us: f64,
    /// The cycle of a rank with the anchor, once a node shares a rank with it.
    pub(super) anchor_us: f64,
    /// GPU time without the [exposure](Self::exposure), GPU-microseconds.
    pub(super) gpu_us: f64,
    /// Additional GPU time in which the first node's ranks only communicate.
    pub(super) exposure: Exposure,
    /// GPU count of the first node while it matters; 0 is any.
    pub(super) first_gpus: f64,
    /// By how much shorter the steps on the first ranks are with the smaller shard.
    pub(super) less_us: f64,
    /// Number of ranks outside the first node's list, and number outside its ranks with the larger
    /// shard.
    pub(super) apart: (f64, f64),
    /// The same, within the list that the last node's ranks were chosen from.
    pub(super) beyond: (f64, f64),
    /// The first node's ranks in the last node's list.
    pub(super) holds: FirstNodeRanks,
    /// Index of the way to it, or to the node before until the label is kept.
    pub(super) trail: u32,
}

/// State of the cycle of the anchor's rank.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// No node necessarily shares a rank with the anchor.
    Before,
    /// A rank with the anchor has had the smaller shard since.
    Apart,
    /// It contains the same steps as the cycle of the first node's ranks.
    Joined,
}

/// Position of the nodes after the first ones.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lists {
    /// All are on the first node's list of ranks.
    First,
    /// The last ones are on another list, and none of them returns to the first one.
    Others,
    /// The same, but a later node returns.
    Leaving,
    /// A node has returned.
    Back,
}

/// All combinations of [`Phase`] and [`Lists`].
pub(super) const STATES: [(Phase, Lists); 12] = {
    use Lists::{Back, First, Leaving, Others};
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
    /// Adds steps to all cycles, and an update of the first node's ranks.
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
        self.gpu_us + self.exposure.us()
    }

    /// Returns the longer of the cycles of the first node's ranks and of the anchor's rank,
    /// microseconds.
    pub(super) fn time_us(&self) -> f64 {
        self.longest_us.max(self.anchor_us)
    }

    /// Returns whether no component is smaller than the other one's, whatever follows.
    fn is_dominated(&self, other: &Self) -> bool {
        self.longest_us >= other.longest_us
            && self.gpu_us >= other.gpu_us
            && self.holds == other.holds
            && (self.exposure.is_at_least(&other.exposure)
                || self.gpu_us >= other.gpu_us + other.exposure.max_us())
            && self.anchor_us >= other.anchor_us
            && self.first_us >= other.first_us
            && self.shared_us >= other.shared_us
            && self.less_us <= other.less_us
            && is_within(self.apart, other.apart)
            && is_within(self.beyond, other.beyond)
            && (other.first_gpus <= 0.0 || self.first_gpus.total_cmp(&other.first_gpus).is_eq())
    }

    /// Returns whether no component is smaller than the other one's so far.
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
        if self.holds != other.holds {
            self.holds = FirstNodeRanks::Unknown;
        }
        if self.first_gpus.total_cmp(&other.first_gpus).is_ne() {
            self.first_gpus = 0.0;
        }
        self.less_us = self.less_us.max(other.less_us);
        self.apart = largest(self.apart, other.apart);
        self.beyond = largest(self.beyond, other.beyond);
    }

    /// Returns the label at the first node that is not on the first node's list.
    pub(super) fn leaving_first_list(mut self, to: Lists, run: &FirstRun) -> Self {
        if to == Lists::Others {
            // `shared_us` has no updates before that.
            self.longest_us = self.longest_us.max(self.shared_us + run.tail_us);
            self.exposure =
                Exposure::new(run.exposed_us, self.first_gpus, self.apart.1 - self.apart.0, run.sooner_us);
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

/// Which labels are pruned.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pruning {
    /// Those that another one dominates whatever follows.
    Certainly,
    /// Those that another one dominates so far, for proposals.
    Mostly,
}

/// Prunes labels, and merges neighbours if there are too many.
pub(super) fn prune(front: &mut Vec<Label>, maximum: usize, dropped: Pruning) {
    let (is_no_better, looked_at): (fn(&Label, &Label) -> bool, usize) = match dropped {
        Pruning::Certainly => (Label::is_dominated, COMPARED_LABELS),
        Pruning::Mostly => (Label::is_dominated_so_far, 1),
    };
    // Labels are large, so their indices are sorted.
    let keys = front.iter().zip(0..).map(|(label, place)| (label.time_us(), label.gpu_us, place));
    let mut order: Vec<(f64, f64, u32)> = keys.collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut kept: Vec<Label> = Vec::with_capacity(front.len().min(maximum));
    for (_, _, place) in order {
        let label = front[place as usize];
        // If one time follows from the other, the last label is the one that can dominate.
        if !kept.iter().rev().take(looked_at).any(|better| is_no_better(&label, better)) {
            kept.push(label);
        }
    }
    while kept.len() > maximum {
        let mut merged: Vec<Label> = Vec::with_capacity(kept.len().div_ceil(2));
        for pair in kept.chunks(2) {
            let mut both = pair[0];
            both.merge(&pair[pair.len() - 1]);
            merged.push(both);
        }
        kept = merged;
    }
    *front = kept;
}

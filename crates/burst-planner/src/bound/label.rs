//! What the first nodes of a chain take at least, and which of that is worth knowing.

use super::exposure::{Exposure, FirstNodeRanks};
use super::first_run::FirstRun;

/// So many labels before it, by time, a label is compared with.
const COMPARED_LABELS: usize = 128;

/// What the nodes up to some place take at least, with one of the last one's options.
///
/// Times are of cycles: of ranks of the first node, but for the anchor's. All go through the same steps there and back, and end with
/// updates.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Label {
    /// With the updates that all ranks of the first node have.
    pub(super) first_us: f64,
    /// With the updates of some one of them.
    pub(super) longest_us: f64,
    /// With the updates that the last node's ranks have in common, as far as they are of the first node.
    pub(super) shared_us: f64,
    /// The cycle of a rank with the anchor, once there is a node that shares one with it.
    pub(super) anchor_us: f64,
    pub(super) gpu_us: f64,
    /// GPU time beside that, in which the first node's ranks do nothing but communicate.
    pub(super) exposure: Exposure,
    /// The first node's GPU count, as long as that matters; 0 if it may be any.
    pub(super) first_gpus: f64,
    /// How much less the nodes on the first ranks take on one with the smaller share.
    pub(super) less_us: f64,
    /// How many ranks there are beside those of the first node, and beside those that have the larger share.
    pub(super) apart: (f64, f64),
    /// As many, among those that the last node's ranks were chosen from.
    pub(super) beyond: (f64, f64),
    /// What the last node's ranks have of the first one's.
    pub(super) holds: FirstNodeRanks,
    /// Where the way to it is listed; the way to the node before it, until it is kept.
    pub(super) trail: u32,
}

/// How far the cycle of the anchor's rank is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Phase {
    /// No node shares a rank with the anchor for certain.
    Before,
    /// A rank with the anchor has the smaller share since.
    Apart,
    /// It goes through the same steps as the cycle of the first node's ranks.
    Joined,
}

/// Where nodes after the first ones are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Lists {
    /// All are on the first node's list of ranks.
    First,
    /// The last ones are on another list, and none of them comes back to the first one.
    Others,
    /// The same, but some node that follows comes back.
    Leaving,
    /// Some node has come back.
    Back,
}

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
    /// Adds steps of all cycles, and the update of ranks of the first node.
    pub(super) fn add(&mut self, steps_us: f64, update_us: f64, gpu_us: f64) {
        self.first_us += steps_us + update_us;
        self.shared_us += steps_us + update_us;
        self.anchor_us += steps_us;
        // What comes last may be an all-reduce, beside which there are updates.
        self.longest_us = self.first_us.max(self.longest_us + steps_us);
        self.gpu_us += gpu_us;
    }

    pub(super) fn all_gpu_us(&self) -> f64 {
        self.gpu_us + self.exposure.us()
    }

    pub(super) fn time_us(&self) -> f64 {
        self.longest_us.max(self.anchor_us)
    }

    /// Whatever follows: it is no less than after the other one, in any part.
    fn is_no_better(&self, other: &Self) -> bool {
        self.longest_us >= other.longest_us
            && self.gpu_us >= other.gpu_us
            && self.holds == other.holds
            && (self.exposure.is_no_less(&other.exposure)
                || self.gpu_us >= other.gpu_us + other.exposure.max_us())
            && self.anchor_us >= other.anchor_us
            && self.first_us >= other.first_us
            && self.shared_us >= other.shared_us
            && self.less_us <= other.less_us
            && is_within(self.apart, other.apart)
            && is_within(self.beyond, other.beyond)
            && (other.first_gpus <= 0.0 || self.first_gpus.total_cmp(&other.first_gpus).is_eq())
    }

    /// As far as it has come.
    fn seems_no_better(&self, other: &Self) -> bool {
        self.time_us() >= other.time_us() && self.gpu_us >= other.gpu_us
    }

    /// At least as good as both.
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

    /// The first of the nodes that are not all on the first node's list.
    pub(super) fn left(mut self, to: Lists, run: &FirstRun) -> Self {
        if to == Lists::Others {
            // In `shared_us` there are no updates until then.
            self.longest_us = self.longest_us.max(self.shared_us + run.tail_us);
            self.exposure =
                Exposure::new(run.exposed_us, self.first_gpus, self.apart.1 - self.apart.0, run.sooner_us);
            self.first_gpus = 0.0;
        }
        self.shared_us = self.first_us;
        self
    }

    /// All ranks wait for each other: no cycle is shorter than that of the first node's ranks.
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

/// Which labels are dropped.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Pruning {
    /// Those that are no better than another one, whatever follows.
    Certainly,
    /// Those that are no better so far: for proposals.
    Mostly,
}

/// Drops labels, and merges neighbours where there are too many.
pub(super) fn thin(front: &mut Vec<Label>, most: usize, dropped: Pruning) {
    let (is_no_better, looked_at): (fn(&Label, &Label) -> bool, usize) = match dropped {
        Pruning::Certainly => (Label::is_no_better, COMPARED_LABELS),
        Pruning::Mostly => (Label::seems_no_better, 1),
    };
    // Labels are large: their places are sorted.
    let keys = front.iter().zip(0..).map(|(label, place)| (label.time_us(), label.gpu_us, place));
    let mut order: Vec<(f64, f64, u32)> = keys.collect();
    order.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
    let mut kept: Vec<Label> = Vec::with_capacity(front.len().min(most));
    for (_, _, place) in order {
        let label = front[place as usize];
        // Where one time follows from the other, it is the last one that is better, if any is.
        if !kept.iter().rev().take(looked_at).any(|better| is_no_better(&label, better)) {
            kept.push(label);
        }
    }
    while kept.len() > most {
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

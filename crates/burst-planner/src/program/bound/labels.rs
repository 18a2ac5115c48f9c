//! The bound of a chain within a budget, exactly: pairs of time and GPU time, node by node.

use std::ops::Range;

use super::chain::Anchor;
use super::{Bound, BoundOption};

/// So many labels before it, by time, a label is compared with.
const LOOKED_AT: usize = 32;

/// What the nodes up to some place take at least, with one of the last one's options.
#[derive(Debug, Clone, Copy)]
struct Label {
    /// The cycle of the first node's ranks.
    first_us: f64,
    /// The cycle of a rank with the anchor, once there is a node that shares one with it.
    anchor_us: f64,
    gpu_us: f64,
    /// Where the way to it is listed; the way to the node before it, until it is kept.
    trail: u32,
}

/// By label: the option, and where the way to the node before is listed.
type Trails = Vec<(u32, u32)>;

impl Label {
    fn is_no_better(&self, other: &Self) -> bool {
        self.first_us >= other.first_us && self.anchor_us >= other.anchor_us && self.gpu_us >= other.gpu_us
    }

    /// At least as good as both.
    fn merge(&mut self, other: &Self) {
        self.first_us = self.first_us.min(other.first_us);
        self.anchor_us = self.anchor_us.min(other.anchor_us);
        self.gpu_us = self.gpu_us.min(other.gpu_us);
    }
}

/// How far the cycles are.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// No node shares a rank with the anchor for certain.
    Before,
    /// A rank with the anchor has the smaller share since.
    Apart,
    /// Both go through the same steps: both times are the larger one.
    Joined,
}

const PHASES: [Phase; 3] = [Phase::Before, Phase::Apart, Phase::Joined];

/// Labels of one option, by phase.
type Fronts = [Vec<Label>; PHASES.len()];

/// What one option of a node adds to labels of one of the node before.
struct Step<'s> {
    option: &'s BoundOption,
    /// Its steps.
    own_us: f64,
    /// Moving samples to it, and there and back.
    there_us: f64,
    moving_us: f64,
    gpu_us: f64,
    /// The update of the anchor, where the node is the first that certainly shares a rank with it.
    meets: Option<f64>,
    /// Whether the node before has the same count.
    is_same: bool,
}

impl Step<'_> {
    fn taken(&self, mut label: Label, phase: Phase) -> (Phase, Label) {
        let less_us = self.option.less_us.0 + self.option.less_us.1;
        if phase == Phase::Apart && !self.is_same {
            label = label.joined();
        }
        let all_us = self.moving_us + self.own_us;
        let label = Label {
            first_us: label.first_us + all_us,
            anchor_us: label.anchor_us + all_us,
            gpu_us: label.gpu_us + self.gpu_us,
            ..label
        };
        match (phase, self.meets) {
            (Phase::Before, None) => (Phase::Before, Label { anchor_us: 0.0, ..label }),
            (Phase::Before, Some(update_us)) => {
                let met = Label { anchor_us: update_us + self.there_us + self.own_us - less_us, ..label };
                let is_uneven = self.option.ranks < self.option.gpus;
                if is_uneven { (Phase::Apart, met) } else { (Phase::Joined, met.joined()) }
            }
            (Phase::Apart, _) if self.is_same => {
                (Phase::Apart, Label { anchor_us: label.anchor_us - less_us, ..label })
            }
            _ => (Phase::Joined, label),
        }
    }
}

/// What follows an option of a node at least, microseconds.
struct Rest {
    time: f64,
    /// Time, and GPU time at its price.
    priced: f64,
    gpu_time: f64,
}

/// What labels are worth keeping for.
struct Worth {
    price: f64,
    budget_us: f64,
    enough: f64,
}

impl Worth {
    fn is_worth(&self, label: &Label, rest: &Rest) -> bool {
        let priced_us = label.first_us + self.price * (label.gpu_us - self.budget_us) + rest.priced;
        label.gpu_us + rest.gpu_time <= self.budget_us
            && label.first_us + rest.time < self.enough
            && (self.price <= 0.0 || priced_us < self.enough)
    }
}

impl Bound {
    /// No arrangement whose anchor takes one of these options, and whose GPU time is within the budget, is faster. All pairs of
    /// cycle and GPU time are gone through but those that are no better in both, lead beyond the budget or are no less than
    /// `enough`; where there are more than `most` for an option, neighbours count as one that is at least as good as both.
    /// O(nodes x counts^2 x most).
    pub(super) fn least_within(
        &self,
        case: &Range<usize>,
        (budget_us, enough): (f64, f64),
        price: f64,
        most: usize,
    ) -> f64 {
        let (labels, _) = self.labels(case, &Worth { price, budget_us, enough }, most);
        labels.iter().map(|label| label.first_us.max(label.anchor_us)).fold(enough, f64::min)
    }

    /// GPU counts, by place, with which a chain takes little time and GPU time by this bound: about `most` choices.
    pub(in crate::program) fn chain_choices(&self, most: usize) -> Vec<Vec<usize>> {
        if !self.is_chain || self.nodes.iter().any(|node| node.options.is_empty()) {
            return Vec::new();
        }
        let all = 0..self.nodes[self.anchor].options.len();
        let whatever = Worth { price: 0.0, budget_us: f64::INFINITY, enough: f64::INFINITY };
        let (mut labels, trails) = self.labels(&all, &whatever, most);
        thin(&mut labels, most);
        let counts = |label: &Label| {
            let mut trail = label.trail;
            let mut counts = vec![0; self.nodes.len()];
            for (node, count) in self.nodes.iter().zip(&mut counts).rev() {
                let (option, before) = trails[trail as usize];
                *count = node.options[option as usize].gpus as usize;
                trail = before;
            }
            counts
        };
        labels.iter().map(counts).collect()
    }

    /// The labels of the last node, and the ways to all.
    fn labels(&self, case: &Range<usize>, worth: &Worth, most: usize) -> (Vec<Label>, Trails) {
        let anchor = self.anchor_of(case);
        let rests = self.rests_of_chain(case, &anchor, worth.price);
        let mut trails = Trails::new();
        let mut last: Vec<Fronts> = Vec::new();
        for (place, rests) in rests.iter().enumerate() {
            let mut next = Vec::with_capacity(self.nodes[place].options.len());
            for (option, rest) in rests.iter().enumerate() {
                let mut fronts = Fronts::default();
                if place != self.anchor || case.contains(&option) {
                    let is_worth = |label: &Label| worth.is_worth(label, rest);
                    fronts = self.extended(&last, (place, option), &anchor, is_worth);
                }
                for front in &mut fronts {
                    thin(front, most);
                    for label in front {
                        trails.push((option as u32, label.trail));
                        label.trail = trails.len() as u32 - 1;
                    }
                }
                next.push(fronts);
            }
            last = next;
        }
        (last.into_iter().flatten().flatten().map(Label::joined).collect(), trails)
    }

    /// What labels of the node before become with this option, as far as they are worth keeping.
    fn extended(
        &self,
        last: &[Fronts],
        (place, index): (usize, usize),
        anchor: &Anchor,
        is_worth: impl Fn(&Label) -> bool,
    ) -> Fronts {
        let option = &self.nodes[place].options[index];
        let meets = place >= self.learns_from() && anchor.meets(self, place, option);
        let mut step = Step {
            option,
            own_us: self.cycle_us(place, option, anchor),
            there_us: 0.0,
            moving_us: 0.0,
            gpu_us: option.computing_us,
            meets: meets.then_some(anchor.update_us),
            is_same: false,
        };
        let mut fronts = Fronts::default();
        let mut add = |step: &Step<'_>, label: Label, phase: Phase| {
            let (phase, label) = step.taken(label, phase);
            if is_worth(&label) {
                fronts[phase as usize].push(label);
            }
        };
        if place == 0 {
            let nothing = Label { first_us: 0.0, anchor_us: 0.0, gpu_us: 0.0, trail: 0 };
            add(&step, nothing, Phase::Before);
        }
        for (from, before) in last.iter().enumerate() {
            let (there, back) = self.nodes[place].transfers[from][index];
            (step.there_us, step.moving_us) = (there, there + back);
            step.gpu_us = option.computing_us + self.transfer_gpu_us(place, (from, index));
            step.is_same = self.nodes[place - 1].options[from].gpus.total_cmp(&option.gpus).is_eq();
            for (phase, labels) in PHASES.into_iter().zip(before) {
                for &label in labels {
                    add(&step, label, phase);
                }
            }
        }
        fronts
    }

    /// A node's steps in the cycle of the first node's ranks.
    fn cycle_us(&self, place: usize, option: &BoundOption, anchor: &Anchor) -> f64 {
        let is_counted = option.gpus >= self.gpus && (place != self.anchor || anchor.gpus >= self.gpus);
        let update_us = if is_counted { option.update_us } else { 0.0 };
        option.forward_us + option.backward_us + update_us
    }

    /// What follows each node at least.
    fn rests_of_chain(&self, case: &Range<usize>, anchor: &Anchor, price: f64) -> Vec<Vec<Rest>> {
        let mut rests: Vec<Vec<Rest>> = Vec::with_capacity(self.nodes.len());
        for place in (0..self.nodes.len()).rev() {
            let of_option = |index: usize| {
                let mut least = Rest { time: f64::INFINITY, priced: f64::INFINITY, gpu_time: f64::INFINITY };
                let (Some(next), Some(after)) = (self.nodes.get(place + 1), rests.last()) else {
                    return Rest { time: 0.0, priced: 0.0, gpu_time: 0.0 };
                };
                for (to, option) in next.options.iter().enumerate() {
                    if place + 1 == self.anchor && !case.contains(&to) {
                        continue;
                    }
                    let (there, back) = next.transfers[index][to];
                    let us = there + back + self.cycle_us(place + 1, option, anchor);
                    let gpu_us = self.transfer_gpu_us(place + 1, (index, to)) + option.computing_us;
                    least.time = least.time.min(us + after[to].time);
                    least.priced = least.priced.min(us + price * gpu_us + after[to].priced);
                    least.gpu_time = least.gpu_time.min(gpu_us + after[to].gpu_time);
                }
                least
            };
            let of_node = (0..self.nodes[place].options.len()).map(of_option).collect();
            rests.push(of_node);
        }
        rests.reverse();
        rests
    }
}

impl Label {
    fn joined(self) -> Self {
        let us = self.first_us.max(self.anchor_us);
        Self { first_us: us, anchor_us: us, ..self }
    }
}

/// Drops labels that are no better than another one, and merges neighbours where there are too many.
fn thin(front: &mut Vec<Label>, most: usize) {
    front.sort_unstable_by(|a, b| a.first_us.total_cmp(&b.first_us).then(a.gpu_us.total_cmp(&b.gpu_us)));
    let mut kept: Vec<Label> = Vec::with_capacity(front.len().min(most));
    for label in front.drain(..) {
        // Where one time follows from the other, it is the last one that is better, if any is.
        if !kept.iter().rev().take(LOOKED_AT).any(|better| label.is_no_better(better)) {
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

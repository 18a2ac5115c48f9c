//! The bound of a chain within a budget: labels of time and GPU time, node by node.

use std::cmp::Ordering;
use std::ops::Range;

use super::chain::{Anchor, moving_gpu_us};
use super::exposure::Holds;
use super::first_run::FirstRun;
use super::label::{Dropped, Label, Lists, Phase, STATES, thin};
use super::search::MANY_LABELS;
use super::{Bound, BoundOption};

/// By label: the option, and where the way to the node before is listed.
type Trails = Vec<(u32, u32)>;

/// Labels of one option, by [state](STATES).
type Fronts = [Vec<Label>; STATES.len()];

/// What one option of a node adds to labels of one of the node before.
struct Step<'s> {
    bound: &'s Bound,
    option: &'s BoundOption,
    /// Its steps.
    own_us: f64,
    /// Moving samples to it, and there and back.
    there_us: f64,
    moving_us: f64,
    gpu_us: f64,
    /// The update of the anchor, where the node is the first that certainly shares a rank with it.
    meets: Option<f64>,
    /// Its update, as far as the cycle of a rank with the anchor has that.
    anchor_us: f64,
    /// Whether cycles begin here.
    is_first: bool,
    /// Whether the node has gradients to reduce.
    has_gradients: bool,
    /// What follows the nodes up to the one before if all are on the same ranks.
    first_run: FirstRun,
    dropped: Dropped,
    ranks: Ranks,
    /// What its ranks have of the first node's.
    holds: Holds,
}

/// What a node's ranks have to do with those of the node before.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Ranks {
    /// They are the same.
    Same,
    /// They are all among those.
    Among,
    /// Those are all among them.
    Around,
    /// Some rank is only in these, and some only in those.
    Apart,
}

impl Step<'_> {
    /// The label after this step, and the phase that it is in.
    fn taken(&self, mut label: Label, phase: Phase, (before, after): (Lists, Lists)) -> (Phase, Label) {
        let less_us = self.option.less_us.0 + self.option.less_us.1;
        let is_same = self.ranks == Ranks::Same;
        if phase == Phase::Apart && !is_same {
            label = label.joined();
        }
        let steps_us = self.moving_us + self.own_us;
        let is_everywhere = self.option.gpus >= self.bound.gpus;
        // Proposals are worth trying where later updates might be done elsewhere.
        let update_us =
            if self.dropped == Dropped::Mostly && !is_everywhere { 0.0 } else { self.option.update_us };
        if after == Lists::First {
            let without_updates_us = if self.is_first { label.first_us } else { label.shared_us };
            label.add(steps_us, update_us, self.gpu_us);
            (label.longest_us, label.shared_us) = (label.first_us, without_updates_us + steps_us);
            label.first_gpus = self.option.gpus;
            let Step { bound: Bound { gpus: all, .. }, option: BoundOption { gpus, ranks, .. }, .. } = self;
            label.less_us += less_us;
            label.less_backward_us += self.option.less_us.1;
            label.apart = (all - gpus, all - ranks);
            label.beyond = (0.0, gpus - ranks);
        } else {
            if before == Lists::First {
                label = label.left(after, &self.first_run);
            }
            if self.ranks == Ranks::Around || self.ranks == Ranks::Apart {
                label.shared_us = label.first_us;
                // One that it certainly has is none of those beyond.
                let (outside, not_larger) = match self.holds {
                    Holds::Larger => (1.0, 1.0),
                    Holds::Smaller => (1.0, 0.0),
                    Holds::Nothing | Holds::Unknown => (0.0, 0.0),
                };
                let gpus = self.option.gpus;
                label.beyond = (label.apart.0.min(gpus - outside), label.apart.1.min(gpus - not_larger));
                label.exposure.begin_family();
            }
            label.holds = self.holds;
            label.exposure.add(self.option.gpus, self.option.update_us, label.holds);
            label.add(steps_us, if is_everywhere { update_us } else { 0.0 }, self.gpu_us);
            label.shared_us += if is_everywhere { 0.0 } else { update_us };
            let holds = match label.holds {
                Holds::Unknown if self.option.gpus > label.beyond.1 => Holds::Larger,
                Holds::Unknown if self.option.gpus > label.beyond.0 => Holds::Smaller,
                holds => holds,
            };
            match holds {
                Holds::Larger => label.longest_us = label.longest_us.max(label.shared_us),
                Holds::Smaller => label.longest_us = label.longest_us.max(label.shared_us - label.less_us),
                Holds::Nothing | Holds::Unknown => {}
            }
        }
        label.anchor_us += self.anchor_us;
        match (phase, self.meets) {
            (Phase::Before, None) => (Phase::Before, Label { anchor_us: 0.0, ..label }),
            (Phase::Before, Some(update_us)) => {
                let anchor_us = update_us + self.there_us + self.own_us + self.anchor_us - less_us;
                let met = Label { anchor_us, ..label };
                let is_uneven = self.option.ranks < self.option.gpus;
                if is_uneven { (Phase::Apart, met) } else { (Phase::Joined, met.joined()) }
            }
            (Phase::Apart, _) if is_same => {
                (Phase::Apart, Label { anchor_us: label.anchor_us - less_us, ..label })
            }
            _ => (Phase::Joined, label),
        }
    }

    /// What the ranks of this node can have of the first node's.
    fn can_hold(&self, before: &Label) -> impl Iterator<Item = Holds> + use<> {
        use Holds::{Larger, Nothing, Smaller, Unknown};
        let (ranks, held, gpus) = (self.ranks, before.holds, self.option.gpus);
        let (outside, not_larger) = if ranks == Ranks::Among { before.beyond } else { before.apart };
        let can_be = move |holds: &Holds| match (ranks, held, holds) {
            (Ranks::Same, ..) => *holds == held,
            // What the shorter list has, the longer one has, too.
            (Ranks::Among, Smaller | Nothing, Larger)
            | (Ranks::Among, Nothing, Smaller)
            | (Ranks::Around, Larger, Smaller | Nothing)
            | (Ranks::Around, Smaller, Nothing)
            | (.., Unknown) => false,
            (.., Larger) => true,
            (.., Smaller) => gpus <= not_larger && not_larger > outside,
            (.., Nothing) => gpus <= outside,
        };
        [Larger, Smaller, Nothing, Unknown].into_iter().filter(can_be)
    }

    /// Where nodes can be after this one.
    fn lists(&self, before: Lists, label: &Label) -> &'static [Lists] {
        let is_on_first_count =
            label.first_gpus <= 0.0 || label.first_gpus.total_cmp(&self.option.gpus).is_eq();
        match before {
            _ if self.is_first => &[Lists::First],
            Lists::First if self.ranks == Ranks::Same => &[Lists::First],
            Lists::First => &[Lists::Others, Lists::Leaving],
            Lists::Others => &[Lists::Others],
            Lists::Leaving if is_on_first_count && self.has_gradients => &[Lists::Leaving, Lists::Back],
            Lists::Leaving => &[Lists::Leaving],
            Lists::Back => &[Lists::Back],
        }
    }
}

/// What follows an option of a node at least, microseconds.
struct Rest {
    steps: f64,
    /// With updates that all ranks have.
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
    /// Whether GPU time is limited.
    is_limited: bool,
    /// Whether labels are told apart by what the last node's ranks have of the first one's.
    is_fine: bool,
    dropped: Dropped,
}

impl Worth {
    fn is_worth(&self, label: &Label, lists: Lists, rest: &Rest) -> bool {
        if self.dropped == Dropped::Mostly && lists == Lists::Leaving {
            return false;
        }
        let priced_us = label.first_us + self.price * (label.gpu_us - self.budget_us) + rest.priced;
        label.gpu_us + rest.gpu_time <= self.budget_us
            && label.first_us + rest.time < self.enough
            && label.longest_us + rest.steps < self.enough
            && (self.price <= 0.0 || priced_us < self.enough)
    }
}

impl Bound {
    /// No arrangement whose anchor takes one of these options, and whose GPU time is within the budget, is faster. All labels are gone
    /// through but those that are no better than another one, lead beyond the budget or are no less than `enough`; where there are more
    /// than `most` for an option and a state, neighbours count as one that is at least as good as both. O(nodes x counts^2 x most).
    pub(super) fn least_within(
        &self,
        case: &Range<usize>,
        (budget_us, enough): (f64, f64),
        price: f64,
        most: usize,
    ) -> f64 {
        let worth = Worth {
            price,
            budget_us,
            enough,
            is_limited: price > 0.0,
            is_fine: most >= MANY_LABELS,
            dropped: Dropped::Certainly,
        };
        let (labels, _) = self.labels(case, &worth, most);
        labels.iter().map(Label::time_us).fold(enough, f64::min)
    }

    /// GPU counts, by place, with which a chain takes little time and GPU time by this bound: about `most` choices.
    pub(in crate::program) fn chain_choices(&self, most: usize) -> Vec<Vec<usize>> {
        if !self.is_chain || self.nodes.iter().any(|node| node.options.is_empty()) {
            return Vec::new();
        }
        let all = 0..self.nodes[self.anchor].options.len();
        let (budget_us, enough) = (f64::INFINITY, f64::INFINITY);
        let whatever = Worth {
            price: 0.0,
            budget_us,
            enough,
            is_limited: true,
            is_fine: false,
            dropped: Dropped::Mostly,
        };
        let (mut labels, trails) = self.labels(&all, &whatever, most);
        thin(&mut labels, most, Dropped::Mostly);
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
                    fronts = self.extended(&last, (place, option), &anchor, (worth, rest));
                }
                for front in &mut fronts {
                    thin(front, most, worth.dropped);
                    for label in front {
                        trails.push((option as u32, label.trail));
                        label.trail = trails.len() as u32 - 1;
                    }
                }
                next.push(fronts);
            }
            last = next;
        }
        let mut ends = Vec::new();
        for (fronts, first_run) in last.into_iter().zip(self.first_runs.last().into_iter().flatten()) {
            for (&(_, lists), labels) in STATES.iter().zip(fronts) {
                match lists {
                    Lists::First => {
                        ends.extend(labels.into_iter().map(|label| label.left(Lists::Others, first_run)));
                    }
                    Lists::Others | Lists::Back => ends.extend(labels),
                    Lists::Leaving => {}
                }
            }
        }
        ends.retain(|label| label.all_gpu_us() <= worth.budget_us);
        (ends, trails)
    }

    /// What labels of the node before become with this option, as far as they are worth keeping.
    fn extended(
        &self,
        last: &[Fronts],
        (place, index): (usize, usize),
        anchor: &Anchor,
        (worth, rest): (&Worth, &Rest),
    ) -> Fronts {
        let option = &self.nodes[place].options[index];
        let is_everywhere = option.gpus >= self.gpus;
        let own_us = option.forward_us + option.backward_us;
        let meets = place >= self.learns_from() && anchor.meets(self, place, option);
        let mut step = Step {
            bound: self,
            option,
            own_us,
            there_us: 0.0,
            moving_us: 0.0,
            gpu_us: if worth.is_limited { option.computing_us } else { 0.0 },
            meets: meets.then_some(anchor.update_us),
            anchor_us: self.cycle_us(place, option, anchor) - own_us,
            is_first: place == self.learns_from(),
            has_gradients: self.nodes[place].has_gradients,
            first_run: FirstRun::default(),
            dropped: worth.dropped,
            ranks: Ranks::Apart,
            holds: Holds::Larger,
        };
        let mut fronts = Fronts::default();
        let mut add = |step: &Step<'_>, label: Label, (phase, before): (Phase, Lists)| {
            for &after in step.lists(before, &label) {
                let (phase, mut label) = step.taken(label, phase, (before, after));
                if after == Lists::Back {
                    label.first_gpus = 0.0;
                }
                if worth.is_worth(&label, after, rest) {
                    fronts[front_of(phase, after)].push(label);
                }
            }
        };
        if place == 0 {
            add(&step, Label::default(), (Phase::Before, Lists::Others));
        }
        for (from, before) in last.iter().enumerate() {
            let node = &self.nodes[place];
            let gpus = self.nodes[place - 1].options[from].gpus;
            step.first_run = self.first_runs[place - 1][from];
            if !worth.is_limited {
                step.first_run.exposed_us = 0.0;
            }
            let narrowing = gpus.total_cmp(&option.gpus);
            let nested = match narrowing {
                Ordering::Less => Ranks::Around,
                Ordering::Equal => Ranks::Same,
                Ordering::Greater => Ranks::Among,
            };
            // What is proposed is placed later.
            let is_proof = worth.dropped == Dropped::Certainly;
            let can_turn = is_proof && narrowing.is_eq() && gpus > 1.0;
            // Unless one of both has all.
            let can_part = is_proof && !is_everywhere && gpus < self.gpus;
            let ways = [
                Some((nested, node.transfers[from][index])),
                can_turn.then_some((Ranks::Among, node.turned[from])),
                can_part.then_some((Ranks::Apart, node.apart[from][index])),
            ];
            for (ranks, (there, back)) in ways.into_iter().flatten() {
                (step.there_us, step.moving_us, step.ranks) = (there, there + back, ranks);
                // One rank more than the longer list has waits for samples then.
                let other_us = if ranks == Ranks::Apart { there } else { 0.0 };
                let moving_gpu_us = moving_gpu_us(gpus, option.gpus, (there, back)) + other_us;
                step.gpu_us = if worth.is_limited { option.computing_us + moving_gpu_us } else { 0.0 };
                let is_turned = ranks == Ranks::Among && narrowing.is_eq();
                for (&state, labels) in STATES.iter().zip(before) {
                    // Turning them serves nothing else than to part from the first list.
                    if is_turned && state.1 != Lists::First {
                        continue;
                    }
                    for &label in labels {
                        if worth.is_fine {
                            for holds in step.can_hold(&label) {
                                step.holds = holds;
                                add(&step, label, state);
                            }
                        } else {
                            step.holds = Holds::Unknown;
                            add(&step, label, state);
                        }
                    }
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
                let never = f64::INFINITY;
                let mut least = Rest { steps: never, time: never, priced: never, gpu_time: never };
                let (Some(next), Some(after)) = (self.nodes.get(place + 1), rests.last()) else {
                    return Rest { steps: 0.0, time: 0.0, priced: 0.0, gpu_time: 0.0 };
                };
                for (to, option) in next.options.iter().enumerate() {
                    if place + 1 == self.anchor && !case.contains(&to) {
                        continue;
                    }
                    let (there, back) = next.transfers[index][to];
                    let us = there + back + self.cycle_us(place + 1, option, anchor);
                    let gpu_us = self.transfer_gpu_us(place + 1, (index, to)) + option.computing_us;
                    let steps_us = there + back + option.forward_us + option.backward_us;
                    least.steps = least.steps.min(steps_us + after[to].steps);
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

/// The place of a state.
fn front_of(phase: Phase, lists: Lists) -> usize {
    4 * phase as usize + lists as usize
}

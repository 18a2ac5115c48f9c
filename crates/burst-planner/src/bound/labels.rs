//! Lower bound of a chain within a budget of GPU time: labels of time and GPU time, computed node
//! by node.
//!
//! A *label* has lower bounds for the nodes up to some place, the index of a node in topological
//! order. An *option* is a GPU count of a node. The *anchor* is the node with the longest update,
//! and a *case* is a range of the indices of its options.

use std::cmp::Ordering;
use std::ops::Range;

use super::chain::{Anchor, moving_gpu_us};
use super::exposure::FirstNodeRanks;
use super::extension::{Extension, RankRelation};
use super::first_run::FirstRun;
use super::label::{Label, ListPosition, Phase, Pruning, STATES, prune};
use super::search::{CaseBound, FINE_LABELS};
use super::{Bound, BoundOption};
use crate::Stop;
use crate::proof::{ProofBudget, ProofEnd, Work};

/// Total number of labels up to which twice as many are kept per option.
const MAX_LABELS_FOR_DOUBLING: usize = 100_000;
/// Operations that the extension of a label counts as.
const LABEL_OPERATIONS: u64 = 16;

/// By kept label: the index of its option, and the index in this list of the label that it extends.
type KeptLabels = Vec<(u32, u32)>;

/// Labels of the last node, and how they were found.
struct FoundLabels {
    /// The labels.
    labels: Vec<Label>,
    /// Predecessors of all labels.
    kept: KeptLabels,
    /// Whether labels were merged, so that a higher maximum number of labels may raise the bound.
    is_merged: bool,
}

/// Labels of one option, by [state](STATES).
type Fronts = [Vec<Label>; STATES.len()];

/// Lower bounds for the nodes after an option of a node, microseconds.
struct Remaining {
    /// Time of forward and backward steps and transfers.
    steps: f64,
    /// Time with updates that all ranks have.
    time: f64,
    /// Time plus GPU time at its price.
    priced: f64,
    /// GPU time, GPU-microseconds.
    gpu_time: f64,
}

/// Limits above which labels are pruned.
struct LabelLimits {
    /// Price of GPU time, microseconds per GPU-microsecond.
    price: f64,
    /// Maximum GPU time, GPU-microseconds.
    budget_us: f64,
    /// Iteration time from which on a label is pruned, microseconds.
    stop_at_us: f64,
    /// Whether GPU time is limited.
    is_limited: bool,
    /// Whether labels distinguish which of the first node's ranks the last node's list has.
    is_fine: bool,
    /// Rule by which dominated labels are pruned.
    pruning: Pruning,
}

impl LabelLimits {
    fn is_worth(&self, label: &Label, rest: &Remaining) -> bool {
        let priced_us = label.first_us + self.price * (label.gpu_us - self.budget_us) + rest.priced;
        label.gpu_us + rest.gpu_time <= self.budget_us
            && label.first_us + rest.time < self.stop_at_us
            && label.longest_us + rest.steps < self.stop_at_us
            && (self.price <= 0.0 || priced_us < self.stop_at_us)
    }
}

impl Bound {
    /// Returns a lower bound of the iteration time, microseconds, of arrangements within the budget
    /// of `budget_us` GPU-microseconds in which the anchor uses an option in `case`; `stop_at_us`
    /// if the bound is larger than that. Labels are pruned if another one dominates them, if they
    /// exceed the budget, or if they reach `stop_at_us` microseconds, also together with their GPU
    /// time at `price` microseconds per GPU-microsecond. With more than `maximum` labels per option
    /// and state, neighbours are merged into one that is no larger than both. O(nodes x counts^2 x
    /// `maximum`).
    pub(super) fn labels_within(
        &self,
        case: &Range<usize>,
        (budget_us, stop_at_us): (f64, f64),
        price: f64,
        maximum: usize,
        work: &mut Work<'_>,
    ) -> Result<CaseBound, ProofEnd> {
        let limits = LabelLimits {
            price,
            budget_us,
            stop_at_us,
            is_limited: price > 0.0,
            is_fine: maximum >= FINE_LABELS,
            pruning: Pruning::Exact,
        };
        let found = self.labels(case, &limits, maximum, work)?;
        let us = found.labels.iter().map(Label::time_us).fold(stop_at_us, f64::min);
        Ok(CaseBound { us, is_merged: found.is_merged })
    }

    /// Returns at most `maximum` choices of GPU counts with small iteration times and GPU times by
    /// this bound. A choice has the GPU count of each node, by place. Empty if the graph is not a
    /// chain, a node has no options, or the search was stopped.
    pub(crate) fn chain_choices(&self, maximum: usize, stop: &Stop) -> Vec<Vec<usize>> {
        if !self.is_chain || self.nodes.iter().any(|node| node.options.is_empty()) {
            return Vec::new();
        }
        let all = 0..self.nodes[self.anchor].options.len();
        let (budget_us, stop_at_us) = (f64::INFINITY, f64::INFINITY);
        let whatever = LabelLimits {
            price: 0.0,
            budget_us,
            stop_at_us,
            is_limited: true,
            is_fine: false,
            pruning: Pruning::Heuristic,
        };
        let mut work = Work::new(ProofBudget::Operations(u64::MAX), 0, stop);
        let found = self.labels(&all, &whatever, maximum, &mut work);
        let Ok(FoundLabels { labels, kept, .. }) = found else { return Vec::new() };
        let mut pruned = Vec::new();
        prune(&labels, &mut pruned, maximum, Pruning::Heuristic);
        let counts = |label: &Label| {
            let mut entry = label.entry;
            let mut counts = vec![0; self.nodes.len()];
            for (node, count) in self.nodes.iter().zip(&mut counts).rev() {
                let (option, before) = kept[entry as usize];
                *count = node.options[option as usize].gpus as usize;
                entry = before;
            }
            counts
        };
        pruned.iter().map(counts).collect()
    }

    /// Returns the labels of the last node.
    fn labels(
        &self,
        case: &Range<usize>,
        limits: &LabelLimits,
        maximum: usize,
        work: &mut Work<'_>,
    ) -> Result<FoundLabels, ProofEnd> {
        let mut is_merged = false;
        let anchor = self.anchor_of(case);
        let rests = self.remaining_bounds(case, &anchor, limits.price);
        let mut kept = KeptLabels::new();
        let mut last: Vec<Fronts> = Vec::new();
        // Its memory is reused.
        let mut fronts = Fronts::default();
        for (place, rests) in rests.iter().enumerate() {
            let mut next = Vec::with_capacity(self.nodes[place].options.len());
            for (option, rest) in rests.iter().enumerate() {
                fronts.iter_mut().for_each(Vec::clear);
                if place != self.anchor || case.contains(&option) {
                    let extensions =
                        self.extend(&last, (place, option), &anchor, (limits, rest), &mut fronts);
                    work.spend(LABEL_OPERATIONS * extensions)?;
                }
                // With few labels in total, more per option cost little.
                let maximum = if limits.is_fine && kept.len() < MAX_LABELS_FOR_DOUBLING {
                    2 * maximum
                } else {
                    maximum
                };
                let mut pruned = Fronts::default();
                for (front, pruned) in fronts.iter().zip(&mut pruned) {
                    is_merged |= prune(front, pruned, maximum, limits.pruning);
                    for label in pruned {
                        kept.push((option as u32, label.entry));
                        label.entry = kept.len() as u32 - 1;
                    }
                }
                next.push(pruned);
            }
            last = next;
        }
        let mut ends = Vec::new();
        for (fronts, first_run) in last.into_iter().zip(self.first_runs.last().into_iter().flatten()) {
            for (&(_, lists), labels) in STATES.iter().zip(fronts) {
                match lists {
                    ListPosition::First => {
                        ends.extend(
                            labels
                                .into_iter()
                                .map(|label| label.leaving_first_list(ListPosition::Others, first_run)),
                        );
                    }
                    ListPosition::Others | ListPosition::Back => ends.extend(labels),
                    ListPosition::Leaving => {}
                }
            }
        }
        ends.retain(|label| label.all_gpu_us() <= limits.budget_us);
        Ok(FoundLabels { labels: ends, kept, is_merged })
    }

    /// Extends labels of the node before by this option, and adds those within the limits to
    /// `fronts`. Returns the number of all extensions.
    fn extend(
        &self,
        last: &[Fronts],
        (place, index): (usize, usize),
        anchor: &Anchor,
        (limits, rest): (&LabelLimits, &Remaining),
        fronts: &mut Fronts,
    ) -> u64 {
        let option = &self.nodes[place].options[index];
        let is_everywhere = option.gpus >= self.gpus;
        let own_us = option.forward_us + option.backward_us;
        let shares_rank =
            place >= self.first_with_gradient() && anchor.shares_rank_with_anchor(self, place, option);
        let mut extension = Extension {
            bound: self,
            option,
            own_us,
            from_gpus: 0.0,
            there_us: 0.0,
            back_us: 0.0,
            gpu_us: if limits.is_limited { option.computing_us } else { 0.0 },
            is_limited: limits.is_limited,
            anchor_update_us: shares_rank.then_some(anchor.update_us),
            everywhere_update_us: self.cycle_us(place, option, anchor) - own_us,
            is_first: place == self.first_with_gradient(),
            has_gradients: self.nodes[place].has_gradients,
            first_run: FirstRun::default(),
            pruning: limits.pruning,
            ranks: RankRelation::Neither,
            larger_range: None,
            first_node_ranks: FirstNodeRanks::Larger,
        };
        let mut extensions = 0;
        // Proposals are placed later.
        let is_proposal = limits.pruning == Pruning::Heuristic;
        let mut add = |extension: &Extension<'_>, label: Label, (phase, before): (Phase, ListPosition)| {
            for &after in extension.next_positions(before, &label) {
                if is_proposal && after == ListPosition::Leaving {
                    continue;
                }
                extensions += 1;
                let (phase, mut label) = extension.extended(label, phase, (before, after));
                if after == ListPosition::Back {
                    label.first_gpus = 0.0;
                }
                if limits.is_worth(&label, rest) {
                    fronts[front_of(phase, after)].push(label);
                }
            }
        };
        if place == 0 {
            add(&extension, Label::default(), (Phase::Before, ListPosition::Others));
        }
        for (from, before) in last.iter().enumerate() {
            let node = &self.nodes[place];
            let gpus = self.nodes[place - 1].options[from].gpus;
            extension.from_gpus = gpus;
            extension.first_run = self.first_runs[place - 1][from];
            if !limits.is_limited {
                extension.first_run.exposed_us = 0.0;
            }
            let narrowing = gpus.total_cmp(&option.gpus);
            let nested = match narrowing {
                Ordering::Less => RankRelation::Superset,
                Ordering::Equal => RankRelation::Same,
                Ordering::Greater => RankRelation::Subset,
            };
            let can_turn = !is_proposal && narrowing.is_eq() && gpus > 1.0;
            // Unless one of both has all ranks.
            let can_part = !is_proposal && !is_everywhere && gpus < self.gpus;
            let ways = [
                Some((nested, node.transfers[from][index], None)),
                can_turn.then_some((RankRelation::Subset, node.reordered[from], None)),
                can_part.then_some((RankRelation::Neither, node.apart[from][index], None)),
            ];
            let chosen =
                if limits.is_fine && limits.is_limited { &node.subsets[from][index][..] } else { &[] };
            let chosen_ways =
                chosen.iter().map(|&chosen| (nested, (chosen.transfer_us, chosen.transfer_us), Some(chosen)));
            for (ranks, (there, back), choice) in ways.into_iter().flatten().chain(chosen_ways) {
                (extension.there_us, extension.back_us, extension.ranks, extension.larger_range) =
                    (there, back, ranks, choice);
                // One rank more than the longer list has waits for samples then.
                let other_us = if ranks == RankRelation::Neither { there } else { 0.0 };
                let moving_gpu_us = moving_gpu_us(gpus, option.gpus, (there, back)) + other_us;
                extension.gpu_us = if limits.is_limited { option.computing_us + moving_gpu_us } else { 0.0 };
                let is_reordered = ranks == RankRelation::Subset && narrowing.is_eq();
                for (&state, labels) in STATES.iter().zip(before) {
                    // Reordered ranks only serve to leave the first list.
                    if is_reordered && state.1 != ListPosition::First {
                        continue;
                    }
                    // From the first list, the number of chosen ranks is known.
                    let is_known = state.1 == ListPosition::First && ranks == nested && !chosen.is_empty();
                    if is_known != choice.is_some() {
                        continue;
                    }
                    for &label in labels {
                        if limits.is_fine {
                            for first_node_ranks in extension.possible_first_node_ranks(&label) {
                                extension.first_node_ranks = first_node_ranks;
                                add(&extension, label, state);
                            }
                        } else {
                            extension.first_node_ranks = FirstNodeRanks::Unknown;
                            add(&extension, label, state);
                        }
                    }
                }
            }
        }
        extensions
    }

    /// Returns the steps of a node in the cycle of the first node's ranks.
    fn cycle_us(&self, place: usize, option: &BoundOption, anchor: &Anchor) -> f64 {
        let is_counted = option.gpus >= self.gpus && (place != self.anchor || anchor.gpus >= self.gpus);
        let update_us = if is_counted { option.update_us } else { 0.0 };
        option.forward_us + option.backward_us + update_us
    }

    /// Returns lower bounds for the nodes after each node.
    fn remaining_bounds(&self, case: &Range<usize>, anchor: &Anchor, price: f64) -> Vec<Vec<Remaining>> {
        let mut rests: Vec<Vec<Remaining>> = Vec::with_capacity(self.nodes.len());
        for place in (0..self.nodes.len()).rev() {
            let of_option = |index: usize| {
                let never = f64::INFINITY;
                let mut minimum = Remaining { steps: never, time: never, priced: never, gpu_time: never };
                let (Some(next), Some(after)) = (self.nodes.get(place + 1), rests.last()) else {
                    return Remaining { steps: 0.0, time: 0.0, priced: 0.0, gpu_time: 0.0 };
                };
                for (to, option) in next.options.iter().enumerate() {
                    if place + 1 == self.anchor && !case.contains(&to) {
                        continue;
                    }
                    let (there, back) = next.transfers[index][to];
                    let us = there + back + self.cycle_us(place + 1, option, anchor);
                    let gpu_us = self.transfer_gpu_us(place + 1, (index, to)) + option.computing_us;
                    let steps_us = there + back + option.forward_us + option.backward_us;
                    minimum.steps = minimum.steps.min(steps_us + after[to].steps);
                    minimum.time = minimum.time.min(us + after[to].time);
                    minimum.priced = minimum.priced.min(us + price * gpu_us + after[to].priced);
                    minimum.gpu_time = minimum.gpu_time.min(gpu_us + after[to].gpu_time);
                }
                minimum
            };
            let of_node = (0..self.nodes[place].options.len()).map(of_option).collect();
            rests.push(of_node);
        }
        rests.reverse();
        rests
    }
}

/// Returns the index of a state.
fn front_of(phase: Phase, lists: ListPosition) -> usize {
    4 * phase as usize + lists as usize
}

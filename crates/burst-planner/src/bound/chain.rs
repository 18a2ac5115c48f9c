//! Lower bound of a chain: the cycles of its ranks, computed node by node.
//!
//! The *cycle* of a rank is the time from the start of its first step of an iteration to the end of
//! its last update, on whichever ranks the steps in between run. An *option* is a GPU count of a
//! node with its costs, a *place* the index of a node in topological order. The *anchor* is the
//! node with the longest update, and a *case* is a range of the indices of its options.

use std::ops::Range;

use super::prices::{Priced, Solved};
use super::search::{CaseBound, Effort, FINE_LABELS, MIN_LABELS};
use super::{Bound, BoundOption};
use crate::proof::{ProofEnd, Work};

/// Maximum number of rounds in which the weights of all-reduces move to the largest term.
const ROUNDS: usize = 6;
/// Relative improvement that is not worth another round.
const MIN_IMPROVEMENT: f64 = 1e-3;
/// Weights of the cycle of the first node's ranks, relative to the cycle of a rank with the anchor.
/// All are tried.
const SHARES: [f64; 5] = [0.0, 0.25, 0.5, 0.75, 1.0];

/// Properties of the anchor that hold for all its options in a case.
#[derive(Clone, Copy)]
pub(super) struct Anchor {
    /// GPU count of the first option in the case, the smallest one.
    pub(super) gpus: f64,
    /// Minimum update over these options, microseconds; 0 if the anchor is on all ranks, where the
    /// update counts for all nodes.
    pub(super) update_us: f64,
}

impl Anchor {
    /// Returns whether the node at `place` necessarily shares a rank with the anchor if it uses
    /// `option`.
    pub(super) fn shares_rank_with_anchor(&self, bound: &Bound, place: usize, option: &BoundOption) -> bool {
        place == bound.anchor || option.gpus + self.gpus > bound.gpus
    }
}

/// The nodes from some place on, which both cycles contain.
#[derive(Clone, Copy)]
struct Rest {
    /// Minimum of the weighted sum over these nodes, microseconds.
    value: f64,
    /// Difference of it between a rank with the larger and one with the smaller shard,
    /// microseconds.
    less_us: f64,
    /// Place of the last node before the GPU count changes for the first time, if that matters.
    stretch: Option<usize>,
}

/// Minimum sums up to each node and from each node on, by place and option, with the options that
/// attain them.
struct Tables {
    /// By weight of [`SHARES`], place and option: the minimum sum up to the node and the option
    /// before.
    before: [Vec<Vec<(f64, usize)>>; SHARES.len()],
    /// By place and option: the minimum sum from the node on and the next option.
    after: Vec<Vec<(f64, usize)>>,
    /// The same, if the next node has another count.
    changes: Vec<Vec<(f64, usize)>>,
    /// By place and option: the weighted steps of the node.
    own: Vec<Vec<f64>>,
}

/// Price and weights of one sum.
struct Weighing<'w> {
    /// Costs of all nodes.
    bound: &'w Bound,
    /// Range of the indices of the anchor's options.
    case: &'w Range<usize>,
    /// Properties of the anchor in the case.
    anchor: Anchor,
    /// Price of GPU time, microseconds per GPU-microsecond.
    price: f64,
    /// By place: weight of the all-reduces of the node and the nodes before, from its backward step
    /// on.
    from_here: Vec<f64>,
    /// By place: weight of those after its backward step.
    later: Vec<f64>,
    /// Weight of the cycles without all-reduces.
    others: f64,
}

impl Weighing<'_> {
    fn is_allowed(&self, place: usize, option: usize) -> bool {
        place != self.bound.anchor || self.case.contains(&option)
    }

    /// Returns the weighted steps of a node.
    fn own(&self, place: usize, option: &BoundOption, share: f64) -> f64 {
        let is_everywhere = option.gpus >= self.bound.gpus;
        let (update, reduce) = if is_everywhere { (option.update_us, option.reduce_us) } else { (0.0, 0.0) };
        // The anchor's update is counted with the anchor, unless all nodes have it.
        let update =
            if place == self.bound.anchor && self.anchor.gpus < self.bound.gpus { 0.0 } else { update };
        share * option.forward_us
            + (share - self.later[place]) * option.backward_us
            + self.others * update
            + self.from_here[place] * reduce
            + self.price * option.computing_us
    }

    /// Returns the weighted duration of moving samples from the node before to this one, and
    /// gradients back.
    fn moving(&self, place: usize, (from, to): (usize, usize), share: f64) -> f64 {
        let (there, back) = self.bound.nodes[place].transfers[from][to];
        share * there
            + (share - self.later[place - 1]) * back
            + self.price * self.bound.transfer_gpu_us(place, (from, to))
    }

    fn tables(&self) -> Tables {
        let nodes = &self.bound.nodes;
        let count = nodes.len();
        let own = |(place, node): (usize, &super::BoundNode)| {
            let options = node.options.iter().enumerate();
            let of_option = |(index, option): (usize, &BoundOption)| {
                if self.is_allowed(place, index) { self.own(place, option, 1.0) } else { f64::INFINITY }
            };
            options.map(of_option).collect::<Vec<f64>>()
        };
        let own: Vec<Vec<f64>> = nodes.iter().enumerate().map(own).collect();
        let mut after: Vec<Vec<(f64, usize)>> = vec![Vec::new(); count];
        let mut changes = after.clone();
        for place in (0..count).rev() {
            for (index, &own) in own[place].iter().enumerate() {
                let (mut change, mut same) = ((f64::INFINITY, 0), (f64::INFINITY, 0));
                if let Some(next) = nodes.get(place + 1) {
                    for (to, other) in next.options.iter().enumerate() {
                        let value = self.moving(place + 1, (index, to), 1.0) + after[place + 1][to].0;
                        let best = if other.gpus.total_cmp(&nodes[place].options[index].gpus).is_eq() {
                            &mut same
                        } else {
                            &mut change
                        };
                        if value < best.0 {
                            *best = (value, to);
                        }
                    }
                } else {
                    change.0 = 0.0;
                }
                let best = if same.0 < change.0 { same } else { change };
                after[place].push((own + best.0, best.1));
                changes[place].push((own + change.0, change.1));
            }
        }
        let before = SHARES.map(|share| if self.is_needed(share) { self.before(share) } else { Vec::new() });
        Tables { before, after, changes, own }
    }

    /// Without a price, the minimum of the maximum is the maximum of the minima.
    fn is_needed(&self, share: f64) -> bool {
        self.price > 0.0 || share <= 0.0 || share >= 1.0
    }

    /// Returns the minimum sums of nodes that need not share a rank with the anchor, up to each
    /// node.
    fn before(&self, share: f64) -> Vec<Vec<(f64, usize)>> {
        let nodes = &self.bound.nodes;
        let first_with_gradient = self.bound.first_with_gradient();
        let share = share * self.others + 1.0 - self.others;
        let mut before: Vec<Vec<(f64, usize)>> = Vec::with_capacity(self.bound.anchor);
        for (place, node) in nodes[..self.bound.anchor].iter().enumerate() {
            let mut minimum = Vec::with_capacity(node.options.len());
            for (index, option) in node.options.iter().enumerate() {
                if place >= first_with_gradient
                    && self.anchor.shares_rank_with_anchor(self.bound, place, option)
                {
                    minimum.push((f64::INFINITY, 0));
                    continue;
                }
                let mut best = (if place == 0 { 0.0 } else { f64::INFINITY }, 0);
                for (from, &(value, _)) in before.last().map_or(&[][..], |last| last).iter().enumerate() {
                    let value = value + self.moving(place, (from, index), share);
                    if value < best.0 {
                        best = (value, from);
                    }
                }
                minimum.push((best.0 + self.own(place, option, share), best.1));
            }
            before.push(minimum);
        }
        before
    }

    /// Returns the continuations from the first node that shares a rank with the anchor, by the
    /// stretch with one count.
    fn continuations(&self, tables: &Tables, place: usize, option: usize) -> Vec<Rest> {
        let nodes = &self.bound.nodes;
        let gpus = nodes[place].options[option].gpus;
        let uneven = |option: &BoundOption| option.ranks < option.gpus;
        if !uneven(&nodes[place].options[option]) {
            return vec![Rest { value: tables.after[place][option].0, less_us: 0.0, stretch: None }];
        }
        let mut rests = Vec::new();
        let (mut value, mut less_us) = (0.0, 0.0);
        for (last, node) in nodes.iter().enumerate().skip(place) {
            let Some(index) = node.options.iter().position(|other| other.gpus.total_cmp(&gpus).is_eq())
            else {
                break;
            };
            let (forward_us, backward_us) = node.options[index].less_us;
            less_us += forward_us + backward_us;
            let (changes, _) = tables.changes[last][index];
            rests.push(Rest { value: value + changes, less_us, stretch: Some(last) });
            value += tables.own[last][index];
        }
        rests
    }

    /// Returns the minimum of the sums.
    fn solve(&self) -> Solved {
        let tables = self.tables();
        let bound = self.bound;
        let mut best = f64::INFINITY;
        // The first node that shares a rank with the anchor: place, option, weight, the option
        // before, and the continuation.
        let mut found = None;
        for place in bound.first_with_gradient()..=bound.anchor {
            for (index, option) in bound.nodes[place].options.iter().enumerate() {
                if !self.anchor.shares_rank_with_anchor(self.bound, place, option)
                    || !self.is_allowed(place, index)
                {
                    continue;
                }
                if self.min_before(&tables, place, index) + tables.after[place][index].0 >= best {
                    continue;
                }
                for rest in self.continuations(&tables, place, index) {
                    let befores = if place == 0 { 0..1 } else { 0..bound.nodes[place - 1].options.len() };
                    for from in befores {
                        let (value, share) = self.joined(&tables, (place, index), from, &rest);
                        if value < best {
                            best = value;
                            found = Some((place, index, share, from, rest.stretch));
                        }
                    }
                }
            }
        }
        let mut choice = vec![0; bound.nodes.len()];
        if let Some((place, index, share, mut from, stretch)) = found {
            for earlier in (0..place).rev() {
                choice[earlier] = from;
                from = tables.before[share][earlier][from].1;
            }
            let mut index = index;
            for (later, chosen) in choice.iter_mut().enumerate().skip(place) {
                *chosen = index;
                let Some(next) = bound.nodes.get(later + 1) else { break };
                let gpus = bound.nodes[later].options[index].gpus;
                index = match stretch {
                    Some(last) if later < last => {
                        next.options.iter().position(|other| other.gpus.total_cmp(&gpus).is_eq()).unwrap_or(0)
                    }
                    Some(last) if later == last => tables.changes[later][index].1,
                    _ => tables.after[later][index].1,
                };
            }
        }
        Solved { value: best, gpu_us: bound.chain_gpu_us(&choice), choice }
    }

    /// Returns the minimum before a node, where only the cycle of the first node's ranks counts.
    fn min_before(&self, tables: &Tables, place: usize, option: usize) -> f64 {
        let Some(before) = place.checked_sub(1) else { return 0.0 };
        let whole = tables.before.last().map_or(&[][..], |of_share| &of_share[before]);
        let values = whole.iter().enumerate();
        values
            .map(|(from, (value, _))| value + self.moving(place, (from, option), 1.0))
            .fold(f64::INFINITY, f64::min)
    }

    /// Returns the sum if a node is the first that shares a rank with the anchor, and the weight
    /// that gives it.
    fn joined(
        &self,
        tables: &Tables,
        (place, option): (usize, usize),
        from: usize,
        rest: &Rest,
    ) -> (f64, usize) {
        let there = if place == 0 { 0.0 } else { self.bound.nodes[place].transfers[from][option].0 };
        let update_us = (self.anchor.update_us + there - rest.less_us).max(0.0);
        let mut largest = (f64::NEG_INFINITY, 0);
        for (index, &share) in SHARES.iter().enumerate().filter(|(_, share)| self.is_needed(**share)) {
            let mut value = self.others * (1.0 - share) * update_us;
            if place > 0 {
                let all = share * self.others + 1.0 - self.others;
                value += tables.before[index][place - 1][from].0 + self.moving(place, (from, option), all);
            }
            if value > largest.0 {
                largest = (value, index);
            }
        }
        (largest.0 + rest.value, largest.1)
    }
}

impl Bound {
    /// Returns the place of the first node that needs a gradient; the anchor's place if there is
    /// none.
    pub(super) fn first_with_gradient(&self) -> usize {
        self.nodes.iter().position(|node| node.needs_gradient).unwrap_or(self.anchor)
    }

    /// Returns the minimum [`moving_gpu_us`] to the node at `place`, which is not the first one.
    /// `from` and `to` are the indices of the options of the node before and of this node.
    pub(super) fn transfer_gpu_us(&self, place: usize, (from, to): (usize, usize)) -> f64 {
        let (from_gpus, to_gpus) =
            (self.nodes[place - 1].options[from].gpus, self.nodes[place].options[to].gpus);
        moving_gpu_us(from_gpus, to_gpus, self.nodes[place].transfers[from][to])
    }

    /// Returns the minimum of the weighted sum of cycles plus the GPU time at `price` microseconds
    /// per GPU-microsecond, over all choices of one GPU count per node in which the anchor uses an
    /// option in `case`. `reduces` has by place the weight of the cycles that end with the
    /// all-reduces after the node's backward step. O(nodes x counts^2) in most cases.
    pub(super) fn solve_chain(
        &self,
        reduces: &[f64],
        case: &Range<usize>,
        price: f64,
        work: &mut Work<'_>,
    ) -> Result<Solved, ProofEnd> {
        let tables = if price > 0.0 { 1 + SHARES.len() } else { 3 };
        work.spend((tables * self.pairs()) as u64)?;
        let anchor = self.anchor_of(case);
        let mut later = vec![0.0; reduces.len()];
        let mut sum = 0.0;
        for (place, &weight) in reduces.iter().enumerate().rev() {
            later[place] = sum;
            sum += weight;
        }
        let from_here = later.iter().zip(reduces).map(|(later, weight)| later + weight).collect();
        Ok(Weighing { bound: self, case, anchor, price, from_here, later, others: 1.0 - sum }.solve())
    }

    /// Returns the properties of the anchor whose options are those with the indices `case`, of
    /// which there is at least one.
    pub(super) fn anchor_of(&self, case: &Range<usize>) -> Anchor {
        let options = &self.nodes[self.anchor].options[case.clone()];
        let update_us = options.iter().map(|option| option.update_us).fold(f64::INFINITY, f64::min);
        let is_everywhere = options[0].gpus >= self.gpus;
        Anchor { gpus: options[0].gpus, update_us: if is_everywhere { 0.0 } else { update_us } }
    }

    /// Returns a lower bound of the GPU time of these counts: computing, and transfers for which
    /// ranks wait.
    fn chain_gpu_us(&self, choice: &[usize]) -> f64 {
        let computing =
            self.nodes.iter().zip(choice).map(|(node, &option)| node.options[option].computing_us);
        let moves = choice.windows(2).enumerate();
        computing.sum::<f64>()
            + moves.map(|(place, ends)| self.transfer_gpu_us(place + 1, (ends[0], ends[1]))).sum::<f64>()
    }

    /// Returns the node after whose backward step all-reduces take longest, and the excess over
    /// what they replace.
    fn longest_reduces(&self, choice: &[usize]) -> (usize, f64) {
        let (mut hidden, mut reduces, mut updates) = (0.0, 0.0, 0.0);
        let mut longest = (0, 0.0);
        for (place, (node, &index)) in self.nodes.iter().zip(choice).enumerate() {
            let option = &node.options[index];
            if place > 0 {
                hidden += node.transfers[choice[place - 1]][index].1;
            }
            if option.gpus >= self.gpus {
                reduces += option.reduce_us;
                updates += option.update_us;
            }
            if reduces - hidden > longest.1 {
                longest = (place, reduces - hidden);
            }
            hidden += option.backward_us;
        }
        (longest.0, longest.1 - updates)
    }

    /// Returns a lower bound of the iteration time, microseconds, of arrangements within the budget
    /// of `budget_us` GPU-microseconds in which the anchor uses an option in `case`. The search
    /// ends at `stop_at_us` microseconds. `effort` limits the rounds and the labels.
    pub(super) fn chain_within_case(
        &self,
        case: &Range<usize>,
        budget_us: f64,
        stop_at_us: f64,
        effort: &Effort,
        work: &mut Work<'_>,
    ) -> Result<CaseBound, ProofEnd> {
        let maximum = effort.labels;
        let mut reduces = vec![0.0; self.nodes.len()];
        let (mut best, mut price): (f64, f64) = (0.0, 0.0);
        for round in 0..effort.rounds.min(ROUNDS) {
            let solve = |price: f64| self.solve_chain(&reduces, case, price, work);
            let Priced { bound, found } = Priced::new(self.gpus, budget_us, &mut price, solve)?;
            best = best.max(bound);
            let largest = found.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let (place, longer) = largest.map_or((0, 0.0), |(choice, _)| self.longest_reduces(choice));
            if best >= stop_at_us || longer <= MIN_IMPROVEMENT * best {
                break;
            }
            let step_size = 2.0 / (round as f64 + 3.0);
            for weight in &mut reduces {
                *weight *= 1.0 - step_size;
            }
            reduces[place] += step_size;
        }
        // Without a price, labels are compared by time only. Few of them give no more than the sum.
        if best >= stop_at_us || maximum < if price > 0.0 { MIN_LABELS } else { FINE_LABELS } {
            Ok(CaseBound { us: best, is_merged: best < stop_at_us })
        } else {
            let labels = self.labels_within(case, (budget_us, stop_at_us), price, maximum, work)?;
            Ok(CaseBound { us: best.max(labels.us), ..labels })
        }
    }
}

/// Returns the GPU time in which ranks do nothing but move samples to a node and gradients back,
/// GPU-microseconds: ranks that wait for them have no other work. `from_gpus` and `to_gpus` are the
/// GPU counts of the node before and of the node, `there` and `back` the durations of both
/// transfers, microseconds.
pub(super) fn moving_gpu_us(from_gpus: f64, to_gpus: f64, (there, back): (f64, f64)) -> f64 {
    from_gpus.max(to_gpus) * there + from_gpus * back
}

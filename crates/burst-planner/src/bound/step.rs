//! Extension of a chain's labels by one node. A *label* has lower bounds for the nodes up to some
//! node; an *option* is a GPU count of a node with its costs.
//!
//! The *first node* is the first one with a gradient, and the *cycle* of a rank is the time from
//! the start of its first step of an iteration to the end of its last update. The *anchor* is the
//! node with the longest update. A rank has the *larger* or the *smaller* shard of a batch that
//! does not divide evenly.

use super::exposure::FirstNodeRanks;
use super::first_run::FirstRun;
use super::label::{Label, Lists, Phase, Pruning};
use super::transfer_bounds::Subset;
use super::{Bound, BoundOption};

/// Extension of the labels of the node before by one option of a node. Times are in microseconds.
pub(super) struct Step<'s> {
    /// Costs of all nodes.
    pub(super) bound: &'s Bound,
    /// The option.
    pub(super) option: &'s BoundOption,
    /// Forward and backward step of the node.
    pub(super) own_us: f64,
    /// Number of ranks of the node before.
    pub(super) from_gpus: f64,
    /// Minimum duration of moving samples from the node before.
    pub(super) there_us: f64,
    /// Minimum duration of moving their gradients back.
    pub(super) back_us: f64,
    /// GPU time of the node's steps and of these transfers, GPU-microseconds, without the first
    /// node's ranks that wait for gradients; 0 unless GPU time is limited.
    pub(super) gpu_us: f64,
    /// Whether GPU time is limited by a budget.
    pub(super) is_limited: bool,
    /// Minimum update of the anchor, if the node necessarily shares a rank with it; otherwise
    /// `None`.
    pub(super) meets: Option<f64>,
    /// Update of the node, if it is on all GPUs and the update is not that in `meets`; otherwise 0.
    pub(super) anchor_us: f64,
    /// Whether the node is the first node, at which cycles start.
    pub(super) is_first: bool,
    /// Whether the node has gradients of parameters to reduce.
    pub(super) has_gradients: bool,
    /// Bounds for the first node to the node before, if all of these are on the same ranks.
    pub(super) first_run: FirstRun,
    /// Rule by which labels are pruned.
    pub(super) dropped: Pruning,
    /// The node's ranks relative to those of the node before.
    pub(super) ranks: Ranks,
    /// For ranks chosen from the first node's list: range of the number of them with the larger
    /// shard there. `None` if any number is possible.
    pub(super) chosen: Option<Subset>,
    /// Kind of the first node's ranks that are in the node's list.
    pub(super) holds: FirstNodeRanks,
}

/// Relation between the list of ranks of a node and that of the node before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Ranks {
    /// The lists are equal.
    Same,
    /// The node's ranks are a subset, or the same ranks in another order.
    Among,
    /// The node's ranks are a superset.
    Around,
    /// Neither list contains the other.
    Apart,
}

impl Step<'_> {
    /// Extends a label of the node before by this node. `phase` is the state of the label's anchor
    /// cycle, `before` and `after` are the positions of the lists of the node before and of this
    /// node. Returns the new phase and label.
    pub(super) fn extended(
        &self,
        mut label: Label,
        phase: Phase,
        (before, after): (Lists, Lists),
    ) -> (Phase, Label) {
        let less_us = self.option.less_us.0 + self.option.less_us.1;
        let is_same = self.ranks == Ranks::Same;
        if phase == Phase::Apart && !is_same {
            label = label.joined();
        }
        let steps_us = self.there_us + self.back_us + self.own_us;
        let is_everywhere = self.option.gpus >= self.bound.gpus;
        // Proposals are worth trying if later updates can run elsewhere.
        let update_us =
            if self.dropped == Pruning::Mostly && !is_everywhere { 0.0 } else { self.option.update_us };
        if after == Lists::First {
            let without_updates_us = if self.is_first { label.first_us } else { label.shared_us };
            label.add(steps_us, update_us, self.gpu_us);
            (label.longest_us, label.shared_us) = (label.first_us, without_updates_us + steps_us);
            label.first_gpus = self.option.gpus;
            let Step { bound: Bound { gpus: all, .. }, option: BoundOption { gpus, ranks, .. }, .. } = self;
            label.less_us += less_us;
            label.apart = (all - gpus, all - ranks);
            label.beyond = (0.0, gpus - ranks);
        } else {
            if before == Lists::First {
                label = label.leaving_first_list(after, &self.first_run);
                if let Some(Subset { min_larger, max_larger, .. }) = self.chosen {
                    let minimum =
                        if self.holds == FirstNodeRanks::Larger { min_larger.max(1.0) } else { min_larger };
                    let maximum = if self.holds == FirstNodeRanks::Smaller { 0.0 } else { max_larger };
                    label.beyond = (0.0, self.option.gpus - minimum);
                    label.exposure.limit_larger(maximum);
                }
            }
            if self.ranks == Ranks::Around || self.ranks == Ranks::Apart {
                label.shared_us = label.first_us;
                // A rank that it necessarily has is not outside.
                let (outside, not_larger) = match self.holds {
                    FirstNodeRanks::Larger => (1.0, 1.0),
                    FirstNodeRanks::Smaller => (1.0, 0.0),
                    FirstNodeRanks::Nothing | FirstNodeRanks::Unknown => (0.0, 0.0),
                };
                let gpus = self.option.gpus;
                label.beyond = (label.apart.0.min(gpus - outside), label.apart.1.min(gpus - not_larger));
                label.exposure.begin_family();
            }
            if before == Lists::Leaving && after == Lists::Back {
                label.beyond = (0.0, self.option.gpus - self.option.ranks);
            }
            if self.is_limited {
                label.gpu_us += self.waiting(&label) * self.back_us;
            }
            label.holds = self.holds;
            label.exposure.add(self.option.gpus, self.option.update_us, label.holds);
            label.add(steps_us, if is_everywhere { update_us } else { 0.0 }, self.gpu_us);
            label.shared_us += if is_everywhere { 0.0 } else { update_us };
            let holds = match label.holds {
                FirstNodeRanks::Unknown if self.option.gpus > label.beyond.1 => FirstNodeRanks::Larger,
                FirstNodeRanks::Unknown if self.option.gpus > label.beyond.0 => FirstNodeRanks::Smaller,
                holds => holds,
            };
            match holds {
                FirstNodeRanks::Larger => label.longest_us = label.longest_us.max(label.shared_us),
                FirstNodeRanks::Smaller => {
                    label.longest_us = label.longest_us.max(label.shared_us - label.less_us);
                }
                FirstNodeRanks::Nothing | FirstNodeRanks::Unknown => {}
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

    /// Returns a lower bound of the number of ranks of this node and of the first one that are not
    /// of the node before. They have backward steps after the gradients have moved to the latter,
    /// and nothing to compute until then.
    fn waiting(&self, before: &Label) -> f64 {
        let (from, gpus, outside) = (self.from_gpus, self.option.gpus, before.apart.0);
        match (self.ranks, self.holds) {
            (Ranks::Same | Ranks::Among, _) => 0.0,
            (Ranks::Around, _) => (gpus - from - outside).max(0.0),
            (Ranks::Apart, FirstNodeRanks::Larger | FirstNodeRanks::Smaller) if gpus <= 1.0 => 1.0,
            (Ranks::Apart, _) => ((gpus - from).max(0.0) + 1.0 - outside).max(0.0),
        }
    }

    /// Returns the kinds of the first node's ranks that this node's list can have. `before` is the
    /// label of the node before.
    pub(super) fn possible_holds(&self, before: &Label) -> impl Iterator<Item = FirstNodeRanks> + use<> {
        use FirstNodeRanks::{Larger, Nothing, Smaller, Unknown};
        let (ranks, held, gpus, chosen) = (self.ranks, before.holds, self.option.gpus, self.chosen);
        let (outside, not_larger) = if ranks == Ranks::Among { before.beyond } else { before.apart };
        let can_be = move |holds: &FirstNodeRanks| match (ranks, held, holds) {
            (Ranks::Same, ..) => *holds == held,
            // The longer list has all ranks of the shorter one.
            (Ranks::Among, Smaller | Nothing, Larger)
            | (Ranks::Among, Nothing, Smaller)
            | (Ranks::Around, Larger, Smaller | Nothing)
            | (Ranks::Around, Smaller, Nothing)
            | (.., Unknown) => false,
            (.., Larger) if chosen.is_some_and(|chosen| chosen.max_larger < 1.0) => false,
            (.., Smaller) if chosen.is_some_and(|chosen| chosen.min_larger > 0.0) => false,
            (.., Larger) => true,
            (.., Smaller) => gpus <= not_larger && not_larger > outside,
            (.., Nothing) => gpus <= outside,
        };
        [Larger, Smaller, Nothing, Unknown].into_iter().filter(can_be)
    }

    /// Returns the positions that this node's list can have after that of the node before. `label`
    /// is the label of the node before.
    pub(super) fn lists(&self, before: Lists, label: &Label) -> &'static [Lists] {
        let is_on_first_count =
            label.first_gpus <= 0.0 || label.first_gpus.total_cmp(&self.option.gpus).is_eq();
        let can_be_first = is_on_first_count
            && self.has_gradients
            && self.ranks != Ranks::Same
            && matches!(self.holds, FirstNodeRanks::Larger | FirstNodeRanks::Unknown);
        match before {
            _ if self.is_first => &[Lists::First],
            Lists::First if self.ranks == Ranks::Same => &[Lists::First],
            Lists::First => &[Lists::Others, Lists::Leaving],
            Lists::Others => &[Lists::Others],
            Lists::Leaving if can_be_first => &[Lists::Leaving, Lists::Back],
            Lists::Leaving => &[Lists::Leaving],
            Lists::Back => &[Lists::Back],
        }
    }
}

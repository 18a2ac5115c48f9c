//! Extension of a chain's labels by one node. A *label* has lower bounds for the nodes up to some
//! node; an *option* is a GPU count of a node with its costs.
//!
//! The *first node* is the first one with a gradient, and the *cycle* of a rank is the time from
//! the start of its first step of an iteration to the end of its last update. The *anchor* is the
//! node with the longest update. A rank has the *larger* or the *smaller* shard of a batch that
//! does not divide evenly.

use super::exposure::FirstNodeRanks;
use super::first_run::FirstRun;
use super::label::{Label, ListPosition, Phase, Pruning};
use super::transfer_bounds::Subset;
use super::{Bound, BoundOption};

/// The addition of one option of a node to the labels of the node before. Times are in
/// microseconds.
pub(super) struct Extension<'s> {
    /// Costs of all nodes.
    pub(super) bound: &'s Bound,
    /// The option.
    pub(super) option: &'s BoundOption,
    /// Duration of the node's forward and backward step.
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
    /// Minimum duration of the anchor's update; `None` if the node is before the first node or need
    /// not share a rank with the anchor.
    pub(super) anchor_update_us: Option<f64>,
    /// Duration of the node's update if the node is on all GPUs; otherwise 0. Also 0 for the
    /// anchor, unless all its options are on all GPUs.
    pub(super) everywhere_update_us: f64,
    /// Whether the node is the first node, at which cycles start.
    pub(super) is_first: bool,
    /// Whether the node has gradients of parameters to reduce.
    pub(super) has_gradients: bool,
    /// Bounds for the nodes from the first node to the node before. They hold if all of these are
    /// on the same ranks.
    pub(super) first_run: FirstRun,
    /// Rule by which labels are pruned.
    pub(super) pruning: Pruning,
    /// The node's ranks relative to those of the node before.
    pub(super) ranks: RankRelation,
    /// If the node's ranks are a subset of the first node's list: range of the number of them that
    /// have the larger shard of the first node. `None` if any number is possible.
    pub(super) larger_range: Option<Subset>,
    /// Kind of the first node's ranks that are in the node's list.
    pub(super) first_node_ranks: FirstNodeRanks,
}

/// Relation between the list of ranks of a node and that of the node before.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum RankRelation {
    /// The lists are equal.
    Same,
    /// The node's ranks are a subset, or the same ranks in another order.
    Subset,
    /// The node's ranks are a superset.
    Superset,
    /// Neither list contains the other.
    Neither,
}

impl Extension<'_> {
    /// Extends a label of the node before by this node. `phase` is the state of the label's anchor
    /// cycle, `before` and `after` are the positions of the lists of the node before and of this
    /// node. Returns the new phase and label.
    pub(super) fn extended(
        &self,
        mut label: Label,
        phase: Phase,
        (before, after): (ListPosition, ListPosition),
    ) -> (Phase, Label) {
        let less_us = self.option.less_us.0 + self.option.less_us.1;
        let is_same = self.ranks == RankRelation::Same;
        if phase == Phase::Apart && !is_same {
            label = label.joined();
        }
        let steps_us = self.there_us + self.back_us + self.own_us;
        let is_everywhere = self.option.gpus >= self.bound.gpus;
        // Proposals are worth trying if later updates can run elsewhere.
        let update_us =
            if self.pruning == Pruning::Heuristic && !is_everywhere { 0.0 } else { self.option.update_us };
        if after == ListPosition::First {
            let without_updates_us = if self.is_first { label.first_us } else { label.shared_us };
            label.add(steps_us, update_us, self.gpu_us);
            (label.longest_us, label.shared_us) = (label.first_us, without_updates_us + steps_us);
            label.first_gpus = self.option.gpus;
            let Extension { bound: Bound { gpus: all, .. }, option: BoundOption { gpus, ranks, .. }, .. } =
                self;
            label.less_us += less_us;
            label.outside_first = (all - gpus, all - ranks);
            label.outside_first_in_source = (0.0, gpus - ranks);
        } else {
            if before == ListPosition::First {
                label = label.leaving_first_list(after, &self.first_run);
                if let Some(Subset { min_larger, max_larger, .. }) = self.larger_range {
                    let minimum = if self.first_node_ranks == FirstNodeRanks::Larger {
                        min_larger.max(1.0)
                    } else {
                        min_larger
                    };
                    let maximum =
                        if self.first_node_ranks == FirstNodeRanks::Smaller { 0.0 } else { max_larger };
                    label.outside_first_in_source = (0.0, self.option.gpus - minimum);
                    label.exposure.limit_larger(maximum);
                }
            }
            if self.ranks == RankRelation::Superset || self.ranks == RankRelation::Neither {
                label.shared_us = label.first_us;
                // A rank that it necessarily has is not outside.
                let (outside, not_larger) = match self.first_node_ranks {
                    FirstNodeRanks::Larger => (1.0, 1.0),
                    FirstNodeRanks::Smaller => (1.0, 0.0),
                    FirstNodeRanks::Nothing | FirstNodeRanks::Unknown => (0.0, 0.0),
                };
                let gpus = self.option.gpus;
                label.outside_first_in_source =
                    (label.outside_first.0.min(gpus - outside), label.outside_first.1.min(gpus - not_larger));
                label.exposure.begin_family();
            }
            if before == ListPosition::Leaving && after == ListPosition::Back {
                label.outside_first_in_source = (0.0, self.option.gpus - self.option.ranks);
            }
            if self.is_limited {
                label.gpu_us += self.waiting(&label) * self.back_us;
            }
            label.first_node_ranks = self.first_node_ranks;
            label.exposure.add(self.option.gpus, self.option.update_us, label.first_node_ranks);
            label.add(steps_us, if is_everywhere { update_us } else { 0.0 }, self.gpu_us);
            label.shared_us += if is_everywhere { 0.0 } else { update_us };
            let first_node_ranks = match label.first_node_ranks {
                FirstNodeRanks::Unknown if self.option.gpus > label.outside_first_in_source.1 => {
                    FirstNodeRanks::Larger
                }
                FirstNodeRanks::Unknown if self.option.gpus > label.outside_first_in_source.0 => {
                    FirstNodeRanks::Smaller
                }
                first_node_ranks => first_node_ranks,
            };
            match first_node_ranks {
                FirstNodeRanks::Larger => label.longest_us = label.longest_us.max(label.shared_us),
                FirstNodeRanks::Smaller => {
                    label.longest_us = label.longest_us.max(label.shared_us - label.less_us);
                }
                FirstNodeRanks::Nothing | FirstNodeRanks::Unknown => {}
            }
        }
        label.anchor_us += self.everywhere_update_us;
        match (phase, self.anchor_update_us) {
            (Phase::Before, None) => (Phase::Before, Label { anchor_us: 0.0, ..label }),
            (Phase::Before, Some(update_us)) => {
                let anchor_us = update_us + self.there_us + self.own_us + self.everywhere_update_us - less_us;
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

    /// Returns a lower bound of the number of ranks that run this node and the first node, but not
    /// the node before. After this node's backward step, such a rank has nothing to compute while
    /// the gradients move to the node before. It has further backward steps later, at the latest
    /// that of the first node.
    fn waiting(&self, before: &Label) -> f64 {
        let (from, gpus, outside) = (self.from_gpus, self.option.gpus, before.outside_first.0);
        match (self.ranks, self.first_node_ranks) {
            (RankRelation::Same | RankRelation::Subset, _) => 0.0,
            (RankRelation::Superset, _) => (gpus - from - outside).max(0.0),
            (RankRelation::Neither, FirstNodeRanks::Larger | FirstNodeRanks::Smaller) if gpus <= 1.0 => 1.0,
            (RankRelation::Neither, _) => ((gpus - from).max(0.0) + 1.0 - outside).max(0.0),
        }
    }

    /// Returns the kinds of the first node's ranks that this node's list can have. `before` is the
    /// label of the node before.
    pub(super) fn possible_first_node_ranks(
        &self,
        before: &Label,
    ) -> impl Iterator<Item = FirstNodeRanks> + use<> {
        use FirstNodeRanks::{Larger, Nothing, Smaller, Unknown};
        let (ranks, held, gpus, larger_range) =
            (self.ranks, before.first_node_ranks, self.option.gpus, self.larger_range);
        let (outside, not_larger) =
            if ranks == RankRelation::Subset { before.outside_first_in_source } else { before.outside_first };
        let can_be = move |first_node_ranks: &FirstNodeRanks| match (ranks, held, first_node_ranks) {
            (RankRelation::Same, ..) => *first_node_ranks == held,
            // The longer list has all ranks of the shorter one.
            (RankRelation::Subset, Smaller | Nothing, Larger)
            | (RankRelation::Subset, Nothing, Smaller)
            | (RankRelation::Superset, Larger, Smaller | Nothing)
            | (RankRelation::Superset, Smaller, Nothing)
            | (.., Unknown) => false,
            (.., Larger) if larger_range.is_some_and(|larger_range| larger_range.max_larger < 1.0) => false,
            (.., Smaller) if larger_range.is_some_and(|larger_range| larger_range.min_larger > 0.0) => false,
            (.., Larger) => true,
            (.., Smaller) => gpus <= not_larger && not_larger > outside,
            (.., Nothing) => gpus <= outside,
        };
        [Larger, Smaller, Nothing, Unknown].into_iter().filter(can_be)
    }

    /// Returns the positions that this node's list can have after that of the node before. `label`
    /// is the label of the node before.
    pub(super) fn next_positions(&self, before: ListPosition, label: &Label) -> &'static [ListPosition] {
        let is_on_first_count =
            label.first_gpus <= 0.0 || label.first_gpus.total_cmp(&self.option.gpus).is_eq();
        let can_be_first = is_on_first_count
            && self.has_gradients
            && self.ranks != RankRelation::Same
            && matches!(self.first_node_ranks, FirstNodeRanks::Larger | FirstNodeRanks::Unknown);
        match before {
            _ if self.is_first => &[ListPosition::First],
            ListPosition::First if self.ranks == RankRelation::Same => &[ListPosition::First],
            ListPosition::First => &[ListPosition::Others, ListPosition::Leaving],
            ListPosition::Others => &[ListPosition::Others],
            ListPosition::Leaving if can_be_first => &[ListPosition::Leaving, ListPosition::Back],
            ListPosition::Leaving => &[ListPosition::Leaving],
            ListPosition::Back => &[ListPosition::Back],
        }
    }
}

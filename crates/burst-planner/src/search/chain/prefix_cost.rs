//! Modelled cost of the first nodes of a chain.
//!
//! A *segment* is a range of consecutive ranks that the model does not distinguish, and a *mask* is
//! a set of segments: bit i is set for segment i.
//!
//! The iteration time is the sum of all forward and backward steps and of the transfers between
//! them, plus the maximum over all ranks of what remains then: the rank's updates minus the time
//! before its first node. All-reduces are hidden behind backward steps, except for those that take
//! longer than the steps of their own ranks, and the last bucket of each list, which is reduced
//! when no other work is left.
//!
//! For most arrangements with fast all-reduces this equals the time and the GPU time of the
//! program. It only selects arrangements to evaluate.

use super::lists::{AllReduceCost, MAX_SEGMENTS, RankList, TransferCost};
use super::steps::StepCost;
use crate::evaluator::PlanTime;

/// Modelled cost of the nodes of a chain before some place.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixCost {
    /// Duration of their forward and backward steps and of the transfers between them.
    time_us: f64,
    /// GPU time of these steps and transfers, GPU-microseconds.
    gpu_us: f64,
    /// Duration of their backward steps.
    backward_us: f64,
    /// Duration of their all-reduces.
    reduces_us: f64,
    /// Excess over that of an all-reduce with those of the nodes before and the updates after it.
    late_us: f64,
    /// By segment of ranks: its updates minus the time before its first node; negative infinity
    /// without nodes.
    extra_us: [f64; MAX_SEGMENTS],
    /// Segments with the smaller shard of the first nodes, while nodes are on that list.
    smaller: u16,
    /// The last all-reduce of the first nodes' ranks.
    last: Option<LastAllReduce>,
}

/// The last all-reduce of an iteration, and the updates after it.
#[derive(Debug, Clone, Copy)]
struct LastAllReduce {
    /// Segments of its ranks.
    mask: u16,
    /// Its duration, with the delay by the all-reduces before it.
    reduce_us: f64,
    /// Duration of the updates after it.
    update_us: f64,
    /// Number of ranks of each segment.
    ranks_of_segment: f64,
}

impl PrefixCost {
    /// Returns the cost of the first nodes, which run on `list` and whose steps have the cost
    /// `step`.
    pub(super) fn first(list: &RankList, step: &StepCost) -> Self {
        let nothing = Self {
            time_us: 0.0,
            gpu_us: 0.0,
            backward_us: 0.0,
            reduces_us: 0.0,
            late_us: 0.0,
            extra_us: [f64::NEG_INFINITY; MAX_SEGMENTS],
            smaller: list.smaller,
            last: None,
        };
        nothing.with(list.mask, step)
    }

    /// Returns a lower bound of the [iteration time](Self::iteration_us) and the GPU time after
    /// nodes with the cost `step` are added, after a transfer with the cost `moving` if there is
    /// one.
    /// `tail_us` is the difference of [`iteration_us`](Self::iteration_us) and the steps so far.
    pub(super) fn min_after(
        &self,
        tail_us: f64,
        moving: Option<&TransferCost>,
        step: &StepCost,
    ) -> (f64, f64) {
        let mut time_us = self.time_us + step.time_us;
        let mut gpu_us = self.gpu_us + step.gpu_us;
        if let Some(moving) = moving {
            (time_us, gpu_us) = (time_us + moving.time_us, gpu_us + moving.gpu_us);
        }
        let less_us = if self.smaller == 0 || moving.is_some() { 0.0 } else { step.less_us.max(0.0) };
        (time_us + (tail_us - less_us).max(0.0), gpu_us)
    }

    /// Adds nodes with the cost `step` on another list with the segments `mask`, after a transfer
    /// with the cost `moving` from the ranks of the nodes before.
    pub(super) fn after(mut self, moving: &TransferCost, mask: u16, step: &StepCost) -> Self {
        self.smaller = 0;
        // A rank without earlier nodes starts when it receives samples.
        let mut next = self.with(mask, step);
        next.time_us += moving.time_us;
        next.backward_us += moving.time_us / 2.0;
        next.gpu_us += moving.gpu_us;
        next
    }

    /// Adds nodes with the cost `step` on the same list, whose segments are `mask`.
    pub(super) fn with(mut self, mask: u16, step: &StepCost) -> Self {
        let begins_us = -self.time_us;
        for segment in segments(mask) {
            let less_us = if self.smaller >> segment & 1 == 1 { step.less_us } else { 0.0 };
            let extra_us = &mut self.extra_us[segment];
            *extra_us = extra_us.max(begins_us) + step.update_us - less_us;
        }
        self.time_us += step.time_us;
        self.backward_us += step.backward_us;
        self.gpu_us += step.gpu_us;
        self
    }

    /// Sets the last all-reduce of the iteration, that of the gradients of the first nodes. `mask`
    /// are the segments of their ranks, each of `ranks_of_segment` ranks.
    pub(super) fn with_last(mut self, mask: u16, reducing: &AllReduceCost, ranks_of_segment: f64) -> Self {
        self.reduces_us += reducing.reduces_us;
        let reduce_us = reducing.delay_us + reducing.last_us;
        self.last =
            Some(LastAllReduce { mask, reduce_us, update_us: reducing.last_update_us, ranks_of_segment });
        self
    }

    /// Adds the all-reduces of the last nodes that were added, on `ranks` ranks, of which `beside`
    /// ranks are not on the list of the nodes before them.
    pub(super) fn reduced(mut self, reducing: &AllReduceCost, ranks: f64, beside: f64) -> Self {
        let hidden_us = self.backward_us - reducing.backward_us;
        let behind_us = reducing.last_us + self.reduces_us + reducing.last_update_us;
        self.late_us = self.late_us.max(behind_us - hidden_us);
        self.reduces_us += reducing.reduces_us;
        self.time_us += reducing.delay_us;
        self.backward_us += reducing.delay_us;
        self.gpu_us += ranks * reducing.delay_us + beside * reducing.last_us;
        self
    }

    /// Returns the modelled iteration time and GPU time, with the last all-reduce if it is set.
    pub(super) fn time(&self) -> PlanTime {
        let mut exposed_us = 0.0;
        if let Some(last) = self.last {
            for segment in segments(last.mask) {
                // Other updates hide it.
                let others_us = (self.extra_us[segment] - last.update_us).max(0.0);
                exposed_us += last.ranks_of_segment * (last.reduce_us - others_us).max(0.0);
            }
        }
        PlanTime { iteration_us: self.iteration_us(), gpu_time_us: self.gpu_us + exposed_us }
    }

    /// Returns the modelled iteration time, with the last all-reduce if it is set, microseconds.
    pub(super) fn iteration_us(&self) -> f64 {
        self.time_us + self.tail_us()
    }

    /// Returns the part of the modelled iteration time after the steps, microseconds.
    pub(super) fn tail_us(&self) -> f64 {
        let last_us = self.last.map_or(0.0, |last| last.reduce_us + last.update_us);
        self.longest_us().max(last_us).max(self.late_us)
    }

    /// Returns the modelled GPU time without the last all-reduce, GPU-microseconds.
    pub(super) fn gpu_us(&self) -> f64 {
        self.gpu_us
    }

    fn longest_us(&self) -> f64 {
        self.extra_us.iter().copied().fold(0.0, f64::max)
    }

    /// Returns the updates of the ranks in a segment minus the time before their first node,
    /// microseconds; negative infinity if the segment has no nodes.
    pub(super) fn extra_us(&self, segment: usize) -> f64 {
        self.extra_us[segment]
    }

    /// Returns whether a rank in one of the first `segments` segments can have an additional update
    /// of `update_us` microseconds without ending later than the last rank.
    pub(super) fn could_hide(&self, segments: usize, update_us: f64) -> bool {
        let max_us = self.longest_us() - update_us;
        self.extra_us[..segments].iter().any(|&extra_us| extra_us <= max_us)
    }
}

/// Returns the segments of a mask.
fn segments(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let segment = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(segment)
    })
}

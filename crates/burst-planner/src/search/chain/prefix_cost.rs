//! What the first nodes of a chain take, by a simple model.
//!
//! An iteration takes as long as the steps of all nodes, there and back, with what moves between them, and what some rank has left to
//! do then: its updates, less all that comes before its first node. All-reduces are thought to hide behind backward steps, but for those
//! that take longer than the steps of their own ranks, and the last bucket of each list, which is reduced when there is nothing else to do.
//!
//! That is the time of the program, and its GPU time, for most arrangements whose gradients are reduced fast. It is not used for anything but
//! to choose what is evaluated.

use super::lists::{AllReduceCost, RankList, SEGMENTS, TransferCost};
use super::steps::StepCost;
use crate::evaluator::PlanTime;

/// What the nodes up to some place take.
#[derive(Debug, Clone, Copy)]
pub(super) struct PrefixCost {
    /// Their steps there and back, and moving samples between them.
    time_us: f64,
    gpu_us: f64,
    /// Their way back alone.
    backward_us: f64,
    /// Their all-reduces.
    reduces_us: f64,
    /// How much longer than that some all-reduce, those of the nodes before, and the updates after it, take.
    late_us: f64,
    /// By segment of ranks: their updates, less what comes before their first node; infinitely little where there is none.
    extra_us: [f64; SEGMENTS],
    /// The segments with the smaller share of the first nodes, while nodes are on that list.
    smaller: u16,
    /// What the ranks of the first nodes do at last.
    last: Option<LastAllReduce>,
}

/// The last all-reduce of an iteration, and the updates that follow it.
#[derive(Debug, Clone, Copy)]
struct LastAllReduce {
    mask: u16,
    reduce_us: f64,
    update_us: f64,
    ranks_of_segment: f64,
}

impl PrefixCost {
    /// The first nodes, on this list.
    pub(super) fn first(list: &RankList, step: &StepCost) -> Self {
        let nothing = Self {
            time_us: 0.0,
            gpu_us: 0.0,
            backward_us: 0.0,
            reduces_us: 0.0,
            late_us: 0.0,
            extra_us: [f64::NEG_INFINITY; SEGMENTS],
            smaller: list.smaller,
            last: None,
        };
        nothing.with(list.mask, step)
    }

    /// With the next nodes in these segments, where samples move to from the ranks of those before.
    pub(super) fn after(mut self, moving: &TransferCost, mask: u16, step: &StepCost) -> Self {
        self.smaller = 0;
        // A rank that begins here does so when samples begin to come.
        let mut next = self.with(mask, step);
        next.time_us += moving.time_us;
        next.backward_us += moving.time_us / 2.0;
        next.gpu_us += moving.gpu_us;
        next
    }

    /// With the next nodes on the same list, in these segments.
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

    /// Now that the first nodes are known, in these segments.
    pub(super) fn with_last(mut self, mask: u16, reducing: &AllReduceCost, ranks_of_segment: f64) -> Self {
        self.reduces_us += reducing.reduces_us;
        let reduce_us = reducing.delay_us + reducing.last_us;
        self.last =
            Some(LastAllReduce { mask, reduce_us, update_us: reducing.last_update_us, ranks_of_segment });
        self
    }

    /// Now that the last nodes are known: on so many ranks, of which those before are not on so many.
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

    pub(super) fn iteration_us(&self) -> f64 {
        let last_us = self.last.map_or(0.0, |last| last.reduce_us + last.update_us);
        self.time_us + self.longest_us().max(last_us).max(self.late_us)
    }

    /// Without the last all-reduce.
    pub(super) fn gpu_us(&self) -> f64 {
        self.gpu_us
    }

    fn longest_us(&self) -> f64 {
        self.extra_us.iter().copied().fold(0.0, f64::max)
    }

    /// What ranks in this segment have left to do at the end.
    pub(super) fn extra_us(&self, segment: usize) -> f64 {
        self.extra_us[segment]
    }

    /// Whether some rank in the first segments could do so much more without being the last one.
    pub(super) fn could_hide(&self, segments: usize, update_us: f64) -> bool {
        let most_us = self.longest_us() - update_us;
        self.extra_us[..segments].iter().any(|&extra_us| extra_us <= most_us)
    }
}

/// Those that a mask has.
fn segments(mut mask: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let segment = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(segment)
    })
}

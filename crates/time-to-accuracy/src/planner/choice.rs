//! Selection among the estimates of candidates. *GPU hours* are the time to the target summed over
//! GPUs, the measure of cost.

use std::cmp::Ordering;
use std::time::Duration;

use super::{Estimate, SkippedCandidate};
use crate::AccuracyError;

/// Kind of GPU hours that are the cost of a candidate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuHours {
    /// All GPUs for the whole time to the target.
    #[default]
    Held,
    /// Active time only, in which GPUs compute or transfer, for clusters where background jobs use
    /// the rest. Equal to [`Held`](Self::Held) if unknown.
    Active,
}

/// Estimates of candidates, at least one, and the candidates that have no estimate.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimates {
    first: Estimate,
    all: Vec<Estimate>,
    skipped: Vec<SkippedCandidate>,
    kind: GpuHours,
}

impl Estimates {
    /// Creates the set from its estimates, sorted by time, and the skipped candidates.
    ///
    /// # Errors
    /// [`AccuracyError::NoEstimate`] if all candidates were skipped. [`AccuracyError::Empty`] if
    /// there are none.
    pub(super) fn new(mut all: Vec<Estimate>, skipped: Vec<SkippedCandidate>) -> Result<Self, AccuracyError> {
        let kind = GpuHours::default();
        all.sort_by(|a, b| by_time(a, b, kind));
        match (all.first(), skipped.first()) {
            (Some(first), _) => Ok(Self { first: first.clone(), all, skipped, kind }),
            (None, Some(SkippedCandidate { configuration, reason })) => Err(AccuracyError::NoEstimate {
                count: skipped.len(),
                first: *configuration,
                reason: reason.to_string(),
            }),
            (None, None) => Err(AccuracyError::Empty { name: "the list of candidates" }),
        }
    }

    /// Sets the kind of GPU hours by which [`cheapest_by`](Self::cheapest_by),
    /// [`frontier`](Self::frontier) and ties are decided. Default: [`GpuHours::Held`].
    #[must_use]
    pub fn with_gpu_hours(mut self, kind: GpuHours) -> Self {
        self.kind = kind;
        self.all.sort_by(|a, b| by_time(a, b, kind));
        if let Some(first) = self.all.first() {
            self.first = first.clone();
        }
        self
    }

    /// Returns all estimates, sorted by time to the target, with ties broken as by
    /// [`soonest`](Self::soonest).
    #[must_use]
    pub fn all(&self) -> &[Estimate] {
        &self.all
    }

    /// Returns the candidates without an estimate, each with the reason.
    #[must_use]
    pub fn skipped(&self) -> &[SkippedCandidate] {
        &self.skipped
    }

    /// Returns the estimate with the minimum time to the target. Ties are broken by fewer GPU
    /// hours, fewer GPUs, a smaller batch, fewer GPUs per worker, no limit, and a lower limit, in
    /// this order.
    #[must_use]
    pub fn soonest(&self) -> &Estimate {
        &self.first
    }

    /// Returns the estimate with the fewest GPU hours among those that reach the target by a
    /// deadline, counted from the start of training, with the mean number of epochs. Ties are
    /// broken by time, and then as by [`soonest`](Self::soonest).
    ///
    /// # Errors
    /// [`AccuracyError::Deadline`] if no candidate reaches the target by then.
    pub fn cheapest_by(&self, deadline: Duration) -> Result<&Estimate, AccuracyError> {
        let in_time = self.all.iter().filter(|estimate| estimate.time <= deadline);
        in_time.min_by(|a, b| by_cost(a, b, self.kind)).ok_or(AccuracyError::Deadline {
            deadline,
            soonest: self.first.configuration,
            time: self.first.time,
        })
    }

    /// Returns the Pareto frontier of time and GPU hours, sorted by time: the estimates that no
    /// other one beats in both. Ties are broken as by [`soonest`](Self::soonest).
    #[must_use]
    pub fn frontier(&self) -> Vec<&Estimate> {
        let mut frontier: Vec<&Estimate> = Vec::new();
        for estimate in &self.all {
            let last = frontier.last().map(|last| cost(last, self.kind));
            if last.is_none_or(|last| cost(estimate, self.kind) < last) {
                frontier.push(estimate);
            }
        }
        frontier
    }
}

fn cost(estimate: &Estimate, kind: GpuHours) -> f64 {
    match kind {
        GpuHours::Held => estimate.gpu_hours,
        GpuHours::Active => estimate.active_gpu_hours.unwrap_or(estimate.gpu_hours),
    }
}

fn by_time(a: &Estimate, b: &Estimate, kind: GpuHours) -> Ordering {
    let by_cost = || cost(a, kind).total_cmp(&cost(b, kind));
    a.time.cmp(&b.time).then_with(by_cost).then_with(|| a.compare_simplicity(b))
}

fn by_cost(a: &Estimate, b: &Estimate, kind: GpuHours) -> Ordering {
    cost(a, kind).total_cmp(&cost(b, kind)).then_with(|| by_time(a, b, kind))
}

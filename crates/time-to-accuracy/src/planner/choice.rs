//! The best of all estimates, for each question.

use std::cmp::Ordering;
use std::time::Duration;

use super::{Estimate, LeftOut};
use crate::AccuracyError;

/// Which GPU hours count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GpuTime {
    /// All GPUs for the whole time, as they are paid for.
    #[default]
    Held,
    /// What GPUs are active in, as where background jobs use the rest: only then can a burst limit pay. All that is held where it is
    /// not known.
    Active,
}

/// What candidates take to the target. There is at least one.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimates {
    first: Estimate,
    all: Vec<Estimate>,
    left_out: Vec<LeftOut>,
    gpu_time: GpuTime,
}

impl Estimates {
    pub(super) fn new(mut all: Vec<Estimate>, left_out: Vec<LeftOut>) -> Result<Self, AccuracyError> {
        let gpu_time = GpuTime::default();
        all.sort_by(|a, b| by_time(a, b, gpu_time));
        match (all.first(), left_out.first()) {
            (Some(first), _) => Ok(Self { first: first.clone(), all, left_out, gpu_time }),
            (None, Some(LeftOut { configuration, reason })) => Err(AccuracyError::NoEstimate {
                count: left_out.len(),
                first: *configuration,
                reason: reason.to_string(),
            }),
            (None, None) => Err(AccuracyError::Empty { name: "the list of candidates" }),
        }
    }

    /// With other GPU hours counted.
    #[must_use]
    pub fn counting(mut self, gpu_time: GpuTime) -> Self {
        self.gpu_time = gpu_time;
        self.all.sort_by(|a, b| by_time(a, b, gpu_time));
        if let Some(first) = self.all.first() {
            self.first = first.clone();
        }
        self
    }

    /// All estimates, the soonest first.
    #[must_use]
    pub fn all(&self) -> &[Estimate] {
        &self.all
    }

    /// The candidates without an estimate, with what is missing of each.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// The one that reaches the target first. Of several the one with the fewest GPU hours, then GPUs, then samples a batch, then GPUs a
    /// worker, then without a limit, then the tightest limit.
    #[must_use]
    pub fn soonest(&self) -> &Estimate {
        &self.first
    }

    /// The one with the fewest GPU hours of those that reach the target by a deadline, with the mean number of epochs. Of several the
    /// soonest, then as for [`soonest`](Self::soonest).
    ///
    /// # Errors
    /// [`AccuracyError::Deadline`] when there is none, with what is soonest.
    pub fn fewest_gpu_hours_by(&self, deadline: Duration) -> Result<&Estimate, AccuracyError> {
        let in_time = self.all.iter().filter(|estimate| estimate.time <= deadline);
        in_time.min_by(|a, b| by_cost(a, b, self.gpu_time)).ok_or(AccuracyError::Deadline {
            deadline,
            soonest: self.first.configuration,
            takes: self.first.time,
        })
    }

    /// Those that nothing is better than in time or in GPU hours without being worse in the other, the soonest first: each later one has
    /// fewer GPU hours. Of several with the same time and GPU hours, the one that the other questions answer with.
    #[must_use]
    pub fn frontier(&self) -> Vec<&Estimate> {
        let mut frontier: Vec<&Estimate> = Vec::new();
        for estimate in &self.all {
            let last = frontier.last().map(|last| cost(last, self.gpu_time));
            if last.is_none_or(|last| cost(estimate, self.gpu_time) < last) {
                frontier.push(estimate);
            }
        }
        frontier
    }
}

fn cost(estimate: &Estimate, gpu_time: GpuTime) -> f64 {
    match gpu_time {
        GpuTime::Held => estimate.gpu_hours,
        GpuTime::Active => estimate.active_gpu_hours.unwrap_or(estimate.gpu_hours),
    }
}

fn by_time(a: &Estimate, b: &Estimate, gpu_time: GpuTime) -> Ordering {
    let by_cost = || cost(a, gpu_time).total_cmp(&cost(b, gpu_time));
    a.time.cmp(&b.time).then_with(by_cost).then_with(|| a.simplest(b))
}

fn by_cost(a: &Estimate, b: &Estimate, gpu_time: GpuTime) -> Ordering {
    cost(a, gpu_time).total_cmp(&cost(b, gpu_time)).then_with(|| by_time(a, b, gpu_time))
}

//! The hosts that supply the foreground's and the background's tasklets. A *piece* is a run of
//! background kernels that is launched as one tasklet. The *estimate* of a tasklet is its expected
//! duration alone on the device.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::cut::{BackgroundPiece, cut};
use super::{Iteration, StepWork, WorkloadStep};
use crate::seconds::total;
use crate::{DeviceParameters, JobId, Kernel, Lane, Partners, Policy, Tasklet, TaskletId, VirtualWork};

/// Maximum number of background pieces offered and not finished.
const PIECES_AHEAD: u64 = 32;

/// Source of a foreground's tasklets on a [`VirtualDevice`](crate::VirtualDevice).
///
/// It offers iteration after iteration, the next one when the first step of the previous one has
/// finished. On the device, an iteration begins when all steps of the one before have finished.
/// Tasklets are numbered consecutively: the number modulo the number of steps is the step and the
/// [site](Tasklet::site).
#[derive(Debug, Clone)]
pub struct ForegroundHost<'a> {
    iteration: &'a Iteration,
    /// Work of each step.
    works: Vec<VirtualWork>,
    estimates: Vec<Duration>,
    /// The last step on each lane.
    last_compute: Option<usize>,
    last_communication: Option<usize>,
    offered: u64,
    finished: u64,
}

impl<'a> ForegroundHost<'a> {
    /// Creates a host that repeats this iteration. `policy` and the device's `parameters` determine
    /// how its kernels are launched, and so the estimates.
    #[must_use]
    pub fn new(iteration: &'a Iteration, policy: &Policy, parameters: &DeviceParameters) -> Self {
        let (captured, gap) = launching(policy, parameters);
        let estimate = |(step, time): (&WorkloadStep, Duration)| match &step.work {
            StepWork::Compute(kernels) => estimate(time, kernels.len(), gap),
            StepWork::Communication { .. } => time,
        };
        let last = |lane: Lane| iteration.steps.iter().rposition(|step| step.lane() == lane);
        Self {
            iteration,
            works: iteration.steps.iter().map(|step| work(step, captured)).collect(),
            estimates: iteration.steps.iter().zip(iteration.in_order_times()).map(estimate).collect(),
            last_compute: last(Lane::Compute),
            last_communication: last(Lane::Communication),
            offered: 0,
            finished: 0,
        }
    }

    /// Makes all partners [external](Partners::External): the user of the device sets their
    /// arrival, and [`StepWork::Communication::partners_after`] is ignored.
    #[must_use]
    pub fn with_external_partners(mut self) -> Self {
        for work in &mut self.works {
            if let VirtualWork::Communication { partners, .. } = work {
                *partners = Partners::External;
            }
        }
        self
    }

    /// Returns the next tasklet to offer, or `None` if none is due yet or the iteration has no
    /// steps.
    pub fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let steps = self.works.len() as u64;
        // Within an iteration, or when the first step of the last offered one has finished.
        let between_iterations = self.offered.checked_rem(steps)? == 0;
        if between_iterations && self.offered > self.finished.next_multiple_of(steps) {
            return None;
        }
        let (number, index) = (self.offered, (self.offered % steps) as usize);
        self.offered += 1;
        let step = &self.iteration.steps[index];
        let mut tasklet = Tasklet::new(JobId::FOREGROUND, number)
            .on(step.lane())
            .estimated(self.estimates[index])
            .after(self.after(number, index))
            .at_site(index as u32);
        if let StepWork::Communication { communication, .. } = step.work {
            tasklet = tasklet.communicating(communication);
        }
        Some((tasklet, self.works[index].clone()))
    }

    /// Returns the tasklet on the other lane that a step waits for: its dependency, or the end of
    /// the previous iteration.
    fn after(&self, number: u64, index: usize) -> Option<TaskletId> {
        let begin = number - index as u64;
        let before = |last: Option<usize>| {
            let back = self.works.len() as u64 - last? as u64;
            begin.checked_sub(back)
        };
        let step = &self.iteration.steps[index];
        let number = match (step.after, step.lane()) {
            (Some(after), _) => Some(begin + after as u64),
            (None, Lane::Compute) => before(self.last_communication),
            (None, Lane::Communication) => before(self.last_compute),
        };
        number.map(|number| TaskletId { job: JobId::FOREGROUND, number })
    }

    /// Records that one of this host's tasklets has finished.
    pub fn finish(&mut self) {
        self.finished += 1;
    }

    /// Returns the number of completed iterations.
    #[must_use]
    pub fn iterations_ended(&self) -> u64 {
        self.finished.checked_div(self.works.len() as u64).unwrap_or(0)
    }
}

/// Source of a background's tasklets on a [`VirtualDevice`](crate::VirtualDevice).
///
/// It cuts its iteration according to the policy: into its steps if
/// [pieces](Policy::background_piece) are not bounded, and otherwise into maximal runs of kernels
/// within the bound, including the time between kernels, across steps. A kernel that exceeds the
/// bound is a separate piece. It offers piece after piece, with a bounded number of them
/// unfinished.
#[derive(Debug, Clone)]
pub struct BackgroundHost {
    pieces: Vec<BackgroundPiece>,
    estimates: Vec<Duration>,
    captured: bool,
    /// Duration of one iteration's pieces, and its samples.
    time: Duration,
    samples: usize,
    offered: u64,
    /// Number of finished tasklets, each of which is one piece.
    pub(super) finished: u64,
    /// Sum of the durations alone on a device of the finished pieces.
    pub(super) finished_time: Duration,
}

impl BackgroundHost {
    /// Creates a host that repeats this iteration. `policy` and the device's `parameters` determine
    /// how it is cut and its kernels are launched, and so the estimates.
    #[must_use]
    pub fn new(iteration: &Iteration, policy: &Policy, parameters: &DeviceParameters) -> Self {
        let (captured, gap) = launching(policy, parameters);
        let pieces = cut(iteration, policy, gap);
        Self {
            estimates: pieces.iter().map(|piece| estimate(piece.time, piece.kernels.len(), gap)).collect(),
            time: total(pieces.iter().map(|piece| piece.time)),
            pieces,
            captured,
            samples: iteration.samples,
            offered: 0,
            finished: 0,
            finished_time: Duration::ZERO,
        }
    }

    /// Returns the next tasklet to offer, or `None` if none is due yet or the iteration has no
    /// kernels.
    pub fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        if self.offered - self.finished >= PIECES_AHEAD || self.pieces.is_empty() {
            return None;
        }
        let number = self.offered;
        self.offered += 1;
        let index = self.place(number);
        let tasklet =
            Tasklet::new(JobId::BACKGROUND, number).estimated(self.estimates[index]).at_site(index as u32);
        let work =
            VirtualWork::Compute { kernels: self.pieces[index].kernels.clone(), captured: self.captured };
        Some((tasklet, work))
    }

    /// Records that this tasklet of the host has finished.
    pub fn finish(&mut self, tasklet: TaskletId) {
        self.finished += 1;
        let piece = self.pieces[self.place(tasklet.number)].time;
        self.finished_time = self.finished_time.saturating_add(piece);
    }

    /// Returns the indices of the steps that a tasklet's kernels belong to.
    #[must_use]
    pub fn steps(&self, tasklet: TaskletId) -> Range<usize> {
        self.pieces[self.place(tasklet.number)].steps.clone()
    }

    fn place(&self, number: u64) -> usize {
        (number % self.pieces.len() as u64) as usize
    }

    /// Returns the number of completed iterations.
    #[must_use]
    pub fn iterations_ended(&self) -> u64 {
        self.finished.checked_div(self.pieces.len() as u64).unwrap_or(0)
    }

    /// Returns the number of samples trained on, in proportion to the finished part of the
    /// iteration's duration.
    #[must_use]
    pub fn samples(&self) -> f64 {
        self.samples_in(self.finished_time)
    }

    /// Returns the number of samples trained on in `time`, a part of the iterations' duration alone
    /// on a device.
    pub(super) fn samples_in(&self, time: Duration) -> f64 {
        if time.is_zero() {
            return 0.0;
        }
        time.as_secs_f64() / self.time.as_secs_f64() * self.samples as f64
    }
}

/// Returns whether tasklets are captured graphs, and the time between their kernels.
fn launching(policy: &Policy, parameters: &DeviceParameters) -> (bool, Duration) {
    let captured = policy.captured_graphs;
    (captured, if captured { parameters.graph_node_gap } else { parameters.kernel_gap })
}

/// Returns the duration of consecutive kernels with the time `gap` between them. `time` is the sum
/// of their durations.
fn estimate(time: Duration, kernels: usize, gap: Duration) -> Duration {
    time.saturating_add(gap.saturating_mul(u32::try_from(kernels.saturating_sub(1)).unwrap_or(u32::MAX)))
}

fn work(step: &WorkloadStep, captured: bool) -> VirtualWork {
    match &step.work {
        StepWork::Compute(kernels) => {
            VirtualWork::Compute { kernels: Arc::<[Kernel]>::from(kernels.as_slice()), captured }
        }
        StepWork::Communication { transfer, partners_after, .. } => {
            VirtualWork::Communication { transfer: *transfer, partners: Partners::After(*partners_after) }
        }
    }
}

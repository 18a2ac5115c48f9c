//! The hosts of the two jobs: what they offer, and when.

use std::sync::Arc;
use std::time::Duration;

use super::cut::{BackgroundPiece, cut};
use super::{Iteration, Play, Step, StepWork};
use crate::{JobId, Kernel, Lane, Partners, Tasklet, TaskletId, VirtualWork};

/// Background pieces that its host is ahead of the device.
const PIECES_AHEAD: u64 = 32;

/// Offers iteration after iteration, the next one when the first step of the last one has ended.
pub(super) struct Foreground<'a> {
    iteration: &'a Iteration,
    /// By step.
    works: Vec<VirtualWork>,
    estimates: Vec<Duration>,
    /// The last step on each lane.
    last_compute: Option<usize>,
    last_communication: Option<usize>,
    offered: u64,
    pub(super) finished: u64,
}

impl<'a> Foreground<'a> {
    pub(super) fn new(iteration: &'a Iteration, play: &Play) -> Self {
        let captured = play.policy.captured_graphs;
        let gap = if captured { play.parameters.graph_node_gap } else { play.parameters.kernel_gap };
        let estimate = |step: &Step| match &step.work {
            StepWork::Compute(kernels) => estimate(step.estimate(), kernels.len(), gap),
            StepWork::Communication { .. } => step.estimate(),
        };
        let last = |lane: Lane| iteration.steps.iter().rposition(|step| step.lane() == lane);
        Self {
            iteration,
            works: iteration.steps.iter().map(|step| work(step, captured)).collect(),
            estimates: iteration.steps.iter().map(estimate).collect(),
            last_compute: last(Lane::Compute),
            last_communication: last(Lane::Communication),
            offered: 0,
            finished: 0,
        }
    }

    pub(super) fn next(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let steps = self.works.len() as u64;
        // In the middle of an iteration, or when the one that was offered last has begun to end.
        if self.offered % steps == 0 && self.offered > self.finished.next_multiple_of(steps) {
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
        if let StepWork::Communication { receives: true, .. } = step.work {
            tasklet = tasklet.receiving();
        }
        Some((tasklet, self.works[index].clone()))
    }

    /// What a step waits for on the other lane: a step of its iteration, or the end of the iteration before.
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

    pub(super) fn iterations_ended(&self) -> usize {
        (self.finished / self.works.len() as u64) as usize
    }
}

/// Offers piece after piece, so that a bounded number of them waits or runs.
pub(super) struct Background {
    pieces: Vec<BackgroundPiece>,
    estimates: Vec<Duration>,
    captured: bool,
    /// The pieces of one iteration together, and its samples.
    time: Duration,
    samples: usize,
    offered: u64,
    pub(super) finished: u64,
    pub(super) finished_time: Duration,
}

impl Background {
    pub(super) fn new(iteration: &Iteration, play: &Play) -> Self {
        let captured = play.policy.captured_graphs;
        let gap = if captured { play.parameters.graph_node_gap } else { play.parameters.kernel_gap };
        let pieces = cut(iteration, &play.policy);
        Self {
            estimates: pieces.iter().map(|piece| estimate(piece.time, piece.kernels.len(), gap)).collect(),
            time: pieces.iter().map(|piece| piece.time).sum(),
            pieces,
            captured,
            samples: iteration.samples,
            offered: 0,
            finished: 0,
            finished_time: Duration::ZERO,
        }
    }

    pub(super) fn next(&mut self) -> Option<(Tasklet, VirtualWork)> {
        if self.offered - self.finished >= PIECES_AHEAD {
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

    pub(super) fn finish(&mut self, tasklet: TaskletId) {
        self.finished += 1;
        self.finished_time += self.pieces[self.place(tasklet.number)].time;
    }

    fn place(&self, number: u64) -> usize {
        (number % self.pieces.len() as u64) as usize
    }

    pub(super) fn iterations_ended(&self) -> usize {
        (self.finished / self.pieces.len() as u64) as usize
    }

    /// Samples that so much of an iteration's time trains on.
    pub(super) fn samples_in(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.time.as_secs_f64() * self.samples as f64
    }
}

/// How long kernels take that follow each other with a gap between them.
fn estimate(time: Duration, kernels: usize, gap: Duration) -> Duration {
    time + gap * kernels.saturating_sub(1) as u32
}

fn work(step: &Step, captured: bool) -> VirtualWork {
    match &step.work {
        StepWork::Compute(kernels) => {
            VirtualWork::Compute { kernels: Arc::<[Kernel]>::from(kernels.as_slice()), captured }
        }
        StepWork::Communication { transfer, partners_after, .. } => {
            VirtualWork::Communication { transfer: *transfer, partners: Partners::After(*partners_after) }
        }
    }
}

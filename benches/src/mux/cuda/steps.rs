//! The steps of a job: what it offers, and when.

use std::time::Duration;

use gpu_mux::cuda::{Prepared, Work};
use gpu_mux::{Communication, JobId, Lane, Tasklet, TaskletId};

/// Background pieces that their host is ahead of the device.
const PIECES_AHEAD: u64 = 32;

/// A step of what a job does over and over.
pub(super) struct PreparedStep {
    pub(super) lane: Lane,
    pub(super) communication: Communication,
    /// The step on the other lane that it waits for.
    pub(super) after: Option<usize>,
    /// How long it transfers, if that is what it does.
    pub(super) transfer: Option<Duration>,
    pub(super) prepared: Prepared,
}

/// Offers the steps of a job, round after round.
pub(super) struct JobSteps {
    job: JobId,
    pub(super) steps: Vec<PreparedStep>,
    offered: u64,
    finished: u64,
    /// The estimates of the steps that have finished, and of a round.
    finished_time: Duration,
    round_time: Duration,
}

impl JobSteps {
    pub(super) fn new(job: JobId, steps: Vec<PreparedStep>) -> Self {
        let round_time = steps.iter().map(|step| step.prepared.estimate).sum();
        Self { job, steps, offered: 0, finished: 0, finished_time: Duration::ZERO, round_time }
    }

    /// The next tasklet, if it is time for it: the foreground's host is one round ahead of the device, the
    /// background's some pieces.
    pub(super) fn next(&mut self) -> Option<(Tasklet, Work)> {
        let steps = self.steps.len() as u64;
        let enough = if self.job.is_foreground() {
            self.offered % steps == 0 && self.offered > self.finished.next_multiple_of(steps)
        } else {
            self.offered - self.finished >= PIECES_AHEAD
        };
        if enough {
            return None;
        }
        let (number, index) = (self.offered, (self.offered % steps) as usize);
        self.offered += 1;
        let step = &self.steps[index];
        let tasklet = Tasklet::new(self.job, number)
            .on(step.lane)
            .estimated(step.prepared.estimate)
            .after(self.after(number, index))
            .at_site(index as u32);
        let tasklet = match step.lane {
            Lane::Compute => tasklet,
            Lane::Communication => tasklet.communicating(step.communication),
        };
        Some((tasklet, step.prepared.work.clone()))
    }

    /// What a step waits for on the other lane: a step of its round, or the last one of the round before.
    fn after(&self, number: u64, index: usize) -> Option<TaskletId> {
        let lane = self.steps[index].lane;
        let begin = number - index as u64;
        let other = || self.steps.iter().rposition(|step| step.lane != lane);
        let before = || begin.checked_sub((self.steps.len() - other()?) as u64);
        let number = self.steps[index].after.map(|after| begin + after as u64).or_else(before);
        number.map(|number| TaskletId { job: self.job, number })
    }

    /// Takes in that a tasklet has finished, and gives its step.
    pub(super) fn finish(&mut self, tasklet: TaskletId) -> &PreparedStep {
        self.finished += 1;
        let step = &self.steps[(tasklet.number % self.steps.len() as u64) as usize];
        self.finished_time += step.prepared.estimate;
        step
    }

    pub(super) fn rounds(&self) -> usize {
        (self.finished / self.steps.len() as u64) as usize
    }

    /// Tasklets that have finished, and how many rounds they are, by the time that they take.
    pub(super) fn progress(&self) -> (u64, f64) {
        (self.finished, self.finished_time.as_secs_f64() / self.round_time.as_secs_f64().max(1e-9))
    }
}

//! Steps of a job, and the order in which they are offered to the driver as tasklets. A *round* is
//! one iteration of the job.

use std::time::Duration;

use gpu_mux::cuda::{Prepared, Work};
use gpu_mux::{Communication, JobId, Lane, Tasklet, TaskletId};

/// Number of background pieces that are offered ahead of the device.
const PIECES_AHEAD: u64 = 32;

/// A step of a job, prepared for launches.
pub(super) struct PreparedStep {
    /// Lane of the step.
    pub(super) lane: Lane,
    /// Kind of communication; not used in compute steps.
    pub(super) communication: Communication,
    /// Index in `JobSteps::steps` of the step on the other lane that this step waits for. `None` if
    /// it waits for the last step of that lane in the previous round.
    pub(super) after: Option<usize>,
    /// Duration of a communication step without waiting for partners. `None` for compute steps.
    pub(super) transfer: Option<Duration>,
    /// Work to enqueue, and its estimated duration.
    pub(super) prepared: Prepared,
}

/// Steps of a job, which are offered round after round.
pub(super) struct JobSteps {
    job: JobId,
    /// Steps of a round, in order.
    pub(super) steps: Vec<PreparedStep>,
    offered: u64,
    finished: u64,
    /// Sum of the estimates of the finished steps, and of one round.
    finished_time: Duration,
    round_time: Duration,
}

impl JobSteps {
    /// Creates the steps of `job`; `steps` are those of one round.
    pub(super) fn new(job: JobId, steps: Vec<PreparedStep>) -> Self {
        let round_time = steps.iter().map(|step| step.prepared.estimate).sum();
        Self { job, steps, offered: 0, finished: 0, finished_time: Duration::ZERO, round_time }
    }

    /// Returns the next tasklet and its work. `None` if enough tasklets are offered and not
    /// finished: one to two rounds of the foreground, or 32 tasklets of the background.
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

    /// Returns the tasklet on the other lane that a step waits for: a step of its round, or the
    /// last one of the previous round.
    fn after(&self, number: u64, index: usize) -> Option<TaskletId> {
        let lane = self.steps[index].lane;
        let begin = number - index as u64;
        let other = || self.steps.iter().rposition(|step| step.lane != lane);
        let before = || begin.checked_sub((self.steps.len() - other()?) as u64);
        let number = self.steps[index].after.map(|after| begin + after as u64).or_else(before);
        number.map(|number| TaskletId { job: self.job, number })
    }

    /// Records that a tasklet has finished, and returns its step.
    pub(super) fn finish(&mut self, tasklet: TaskletId) -> &PreparedStep {
        self.finished += 1;
        let step = &self.steps[(tasklet.number % self.steps.len() as u64) as usize];
        self.finished_time += step.prepared.estimate;
        step
    }

    /// Returns the number of completed rounds.
    pub(super) fn rounds(&self) -> usize {
        (self.finished / self.steps.len() as u64) as usize
    }

    /// Returns the number of finished tasklets, and the number of finished rounds. A partial round
    /// counts as its finished share of the round's estimated time.
    pub(super) fn progress(&self) -> (u64, f64) {
        (self.finished, self.finished_time.as_secs_f64() / self.round_time.as_secs_f64().max(1e-9))
    }
}

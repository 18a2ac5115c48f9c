use std::num::NonZeroU32;
use std::time::Duration;

use crate::queue::Queue;
use crate::seconds::seconds;
use crate::{Error, JobId, Tasklet, TaskletId};

/// The weight of the newest tasklet in the pace, and how far from 1 it may be: one stall must not count as the rule.
const PACE_WEIGHT: f64 = 0.1;
const MOST_PACE: f64 = 4.0;

/// The background jobs, and what of theirs is in flight.
///
/// They share what time there is by their weights: start-time fair queueing (Goyal, Vin and Cheng, SIGCOMM 1996) on
/// the tasklets' times. A job that had nothing to run does not catch up.
#[derive(Debug, Clone)]
pub(crate) struct Background {
    /// How long a tasklet should take at most.
    piece: Option<Duration>,
    jobs: Vec<JobQueue>,
    in_flight: usize,
    over_long_in_flight: usize,
    /// How long what is in flight takes, by its estimates.
    estimated: Duration,
    /// When what is in flight will have finished, by its estimates.
    busy_until: Duration,
    /// What tasklets take while the foreground is away, by their estimates: a moving average. Communication of the
    /// foreground may hold a part of the device then.
    pace: f64,
    /// The service of the job that was served last, when it was.
    served: f64,
}

#[derive(Debug, Clone)]
struct JobQueue {
    id: JobId,
    queue: Queue,
    weight: NonZeroU32,
    paused: bool,
    lifecycle: Lifecycle,
    /// Device time that it had, in seconds, by its weight.
    served: f64,
    /// When something of it was last launched, or it last got something to run after it had nothing.
    last: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// Launches what waits, and accepts nothing new.
    Draining,
    Failed,
}

impl Background {
    pub(crate) fn new(piece: Option<Duration>) -> Self {
        Self {
            piece,
            jobs: Vec::new(),
            in_flight: 0,
            over_long_in_flight: 0,
            estimated: Duration::ZERO,
            busy_until: Duration::ZERO,
            pace: 1.0,
            served: 0.0,
        }
    }

    pub(crate) fn push(&mut self, now: Duration, tasklet: Tasklet) -> Result<(), Error> {
        let served = self.served;
        let job = self.job_mut(tasklet.id.job);
        if job.lifecycle != Lifecycle::Open {
            return Err(Error::Closed(tasklet));
        }
        let returns = job.queue.is_empty();
        job.queue.push(tasklet)?;
        if returns {
            job.returns(now, served);
        }
        Ok(())
    }

    /// The next tasklet of each job that may be launched now as far as the jobs are concerned, by its job's place.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (usize, &Tasklet)> {
        self.jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| !job.paused)
            .filter_map(|(place, job)| Some((place, job.queue.next()?)))
            // One tasklet that is too long at a time: the foreground never waits for two.
            .filter(|(_, tasklet)| self.over_long_in_flight == 0 || !self.is_over_long(tasklet))
    }

    /// Jobs are served in rising order of this.
    pub(crate) fn turn(&self, place: usize) -> f64 {
        self.jobs[place].served
    }

    /// When something of the job was last launched, or it last got something to run after it had nothing.
    pub(crate) fn last(&self, place: usize) -> Duration {
        self.jobs[place].last
    }

    pub(crate) fn launch(&mut self, place: usize, now: Duration) -> Option<TaskletId> {
        let job = &mut self.jobs[place];
        let tasklet = job.queue.launch()?;
        let estimate = estimate(self.piece, &tasklet);
        let expected = at_pace(estimate, self.pace);
        self.served = job.served;
        job.served += estimate.as_secs_f64() / f64::from(job.weight.get());
        job.last = now;
        self.busy_until = self.free_at(now).saturating_add(expected);
        self.in_flight += 1;
        self.over_long_in_flight += usize::from(self.is_over_long(&tasklet));
        self.estimated = self.estimated.saturating_add(estimate);
        Some(tasklet.id)
    }

    /// Handles the end of a tasklet, which ran while the foreground was `away` or not; false when its job has failed and
    /// its tasklets no longer count.
    pub(crate) fn finish(
        &mut self,
        now: Duration,
        id: TaskletId,
        took: Duration,
        away: bool,
    ) -> Result<bool, Error> {
        let job = self.jobs.iter_mut().find(|job| job.id == id.job).ok_or(Error::NotInFlight(id))?;
        if job.lifecycle == Lifecycle::Failed {
            return Ok(false);
        }
        let tasklet = job.queue.finish(id)?;
        let estimate = estimate(self.piece, &tasklet);
        job.served += (took.as_secs_f64() - estimate.as_secs_f64()) / f64::from(job.weight.get());
        self.forget(&tasklet);
        if away && !estimate.is_zero() {
            let pace = took.as_secs_f64() / estimate.as_secs_f64();
            self.pace += PACE_WEIGHT * (pace.clamp(1.0 / MOST_PACE, MOST_PACE) - self.pace);
        }
        self.busy_until = now.saturating_add(at_pace(self.estimated, self.pace));
        Ok(true)
    }

    pub(crate) fn weigh(&mut self, id: JobId, weight: NonZeroU32) {
        self.job_mut(id).weight = weight;
    }

    pub(crate) fn pause(&mut self, id: JobId) {
        self.job_mut(id).paused = true;
    }

    pub(crate) fn resume(&mut self, id: JobId, now: Duration) {
        let served = self.served;
        let job = self.job_mut(id);
        if std::mem::take(&mut job.paused) {
            job.returns(now, served);
        }
    }

    pub(crate) fn drain(&mut self, id: JobId) {
        let job = self.job_mut(id);
        if job.lifecycle == Lifecycle::Open {
            job.lifecycle = Lifecycle::Draining;
        }
    }

    /// Drops the job and all that is known of it, and says how much of it was in flight.
    pub(crate) fn forget_job(&mut self, id: JobId, now: Duration) -> usize {
        let in_flight = self.fail(id, now);
        self.jobs.retain(|job| job.id != id);
        in_flight
    }

    /// Drops all that the job has, and says how much of it was in flight.
    pub(crate) fn fail(&mut self, id: JobId, now: Duration) -> usize {
        let job = self.job_mut(id);
        job.lifecycle = Lifecycle::Failed;
        let queue = std::mem::take(&mut job.queue);
        queue.all_in_flight().for_each(|tasklet| self.forget(tasklet));
        self.busy_until = now.saturating_add(at_pace(self.estimated, self.pace));
        queue.in_flight()
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    pub(crate) fn in_flight_of(&self, id: JobId) -> usize {
        self.jobs.iter().find(|job| job.id == id).map_or(0, |job| job.queue.in_flight())
    }

    pub(crate) fn is_empty(&self, id: JobId) -> bool {
        self.jobs.iter().find(|job| job.id == id).is_none_or(|job| job.queue.is_empty())
    }

    /// When a tasklet that is launched now would begin.
    pub(crate) fn free_at(&self, now: Duration) -> Duration {
        if self.in_flight == 0 { now } else { self.busy_until.max(now) }
    }

    /// What a tasklet is expected to take now.
    pub(crate) fn expected(&self, tasklet: &Tasklet) -> Duration {
        at_pace(estimate(self.piece, tasklet), self.pace)
    }

    fn is_over_long(&self, tasklet: &Tasklet) -> bool {
        self.piece.is_some_and(|piece| estimate(self.piece, tasklet) > piece)
    }

    fn forget(&mut self, tasklet: &Tasklet) {
        self.in_flight -= 1;
        self.over_long_in_flight -= usize::from(self.is_over_long(tasklet));
        self.estimated = self.estimated.saturating_sub(estimate(self.piece, tasklet));
    }

    /// Jobs are few, and known from their first event on.
    fn job_mut(&mut self, id: JobId) -> &mut JobQueue {
        let place = self.jobs.iter().position(|job| job.id == id).unwrap_or_else(|| {
            self.jobs.push(JobQueue {
                id,
                queue: Queue::default(),
                weight: NonZeroU32::MIN,
                paused: false,
                lifecycle: Lifecycle::Open,
                served: self.served,
                last: Duration::ZERO,
            });
            self.jobs.len() - 1
        });
        &mut self.jobs[place]
    }
}

impl JobQueue {
    /// A job that had nothing to run does not catch up, and begins to wait for its turn now.
    fn returns(&mut self, now: Duration, served: f64) {
        self.served = self.served.max(served);
        self.last = now;
    }
}

/// What a tasklet is taken to take: without an estimate, as long as it should take at most.
fn estimate(piece: Option<Duration>, tasklet: &Tasklet) -> Duration {
    tasklet.estimate.or(piece).unwrap_or_default()
}

fn at_pace(estimate: Duration, pace: f64) -> Duration {
    seconds(estimate.as_secs_f64() * pace)
}

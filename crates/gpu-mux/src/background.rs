//! Queues of the background jobs, and the division of device time between them. The *service* of a
//! job is the device time in seconds that it has received, divided by its weight; the job with the
//! least service is launched next. The *pace* is measured time divided by estimate of recent
//! background tasklets. The *piece bound* is
//! [`Policy::background_piece`](crate::Policy::background_piece). A tasklet is *in flight* from its
//! launch until it is reported as finished. Times are measured from the driver's epoch.

use std::num::NonZeroU32;
use std::time::Duration;

use crate::queue::Queue;
use crate::seconds::seconds;
use crate::{Error, JobId, Tasklet, TaskletId};

/// Weight of the newest tasklet in the pace.
const PACE_WEIGHT: f64 = 0.1;
/// Maximum pace and inverse of the minimum pace of a single tasklet, so that one stall does not
/// dominate the average.
const MAX_PACE: f64 = 4.0;

/// State of all background jobs and their tasklets in flight.
///
/// Jobs share the available time by weight, with start-time fair queueing (Goyal, Vin and Cheng,
/// SIGCOMM 1996) on the tasklets' durations. A job that had nothing to run does not catch up.
#[derive(Debug, Clone)]
pub(crate) struct Background {
    /// Maximum duration of a tasklet.
    piece: Option<Duration>,
    jobs: Vec<JobQueue>,
    in_flight: usize,
    over_limit_in_flight: usize,
    /// Sum of the estimates of the tasklets in flight.
    estimated: Duration,
    /// Expected time at which all tasklets in flight have finished.
    busy_until: Duration,
    /// Moving average of measured time over estimate of the tasklets that ran while the foreground
    /// did not compute. Foreground communication may occupy a part of the device then.
    pace: f64,
    /// Service of the job that was launched last, at its launch. A job that becomes non-empty
    /// starts from this value.
    service: f64,
}

#[derive(Debug, Clone)]
struct JobQueue {
    id: JobId,
    queue: Queue,
    weight: NonZeroU32,
    paused: bool,
    lifecycle: Lifecycle,
    /// Device time received, in seconds, divided by the weight.
    service: f64,
    /// Last time at which a tasklet of the job was launched or the job became non-empty.
    last: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lifecycle {
    Open,
    /// Launches the waiting tasklets and accepts no new ones.
    Draining,
    Failed,
}

impl Background {
    /// Creates a state without jobs. `piece` is the piece bound, or `None` if tasklets are not
    /// bounded.
    pub(crate) fn new(piece: Option<Duration>) -> Self {
        Self {
            piece,
            jobs: Vec::new(),
            in_flight: 0,
            over_limit_in_flight: 0,
            estimated: Duration::ZERO,
            busy_until: Duration::ZERO,
            pace: 1.0,
            service: 0.0,
        }
    }

    /// Appends a tasklet that is ready at `now` to the queue of its job. Fails with
    /// [`Error::Closed`] if the job is draining or has failed, and with [`Error::OutOfOrder`] if
    /// its number is not larger than the job's last.
    pub(crate) fn push(&mut self, now: Duration, tasklet: Tasklet) -> Result<(), Error> {
        let service = self.service;
        let job = self.job_mut(tasklet.id.job);
        if job.lifecycle != Lifecycle::Open {
            return Err(Error::Closed(tasklet));
        }
        let returns = job.queue.is_empty();
        job.queue.push(tasklet)?;
        if returns {
            job.returns(now, service);
        }
        Ok(())
    }

    /// Returns the next tasklet of each job that may be launched as far as the background's own
    /// limits allow, with the index of the job in this state. Paused jobs have none.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = (usize, &Tasklet)> {
        self.jobs
            .iter()
            .enumerate()
            .filter(|(_, job)| !job.paused)
            .filter_map(|(place, job)| Some((place, job.queue.next()?)))
            // At most one tasklet over the piece bound at a time, so that the foreground never
            // waits for two.
            .filter(|(_, tasklet)| self.over_limit_in_flight == 0 || !self.is_over_limit(tasklet))
    }

    /// Returns the service of the job at index `place`: the device time in seconds that it has
    /// received, divided by its weight.
    pub(crate) fn service(&self, place: usize) -> f64 {
        self.jobs[place].service
    }

    /// Returns the last time at which a tasklet of the job at index `place` was launched or the job
    /// became non-empty.
    pub(crate) fn last(&self, place: usize) -> Duration {
        self.jobs[place].last
    }

    /// Launches the next tasklet of the job at index `place` at time `now`: moves it to those in
    /// flight and charges its estimate to the job. Returns its identifier, or `None` if no tasklet
    /// waits.
    pub(crate) fn launch(&mut self, place: usize, now: Duration) -> Option<TaskletId> {
        let job = &mut self.jobs[place];
        let tasklet = job.queue.launch()?;
        let estimate = estimate(self.piece, &tasklet);
        let expected = at_pace(estimate, self.pace);
        self.service = job.service;
        job.service += estimate.as_secs_f64() / f64::from(job.weight.get());
        job.last = now;
        self.busy_until = self.free_at(now).saturating_add(expected);
        self.in_flight += 1;
        self.over_limit_in_flight += usize::from(self.is_over_limit(&tasklet));
        self.estimated = self.estimated.saturating_add(estimate);
        Some(tasklet.id)
    }

    /// Records that a tasklet has finished at `now` after running for `took`. `away` is whether it
    /// ran while the foreground did not compute. Returns `false` if the job has failed, because its
    /// tasklets no longer count. Fails with [`Error::NotInFlight`] for a tasklet that is not in
    /// flight.
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
        job.service += (took.as_secs_f64() - estimate.as_secs_f64()) / f64::from(job.weight.get());
        self.remove_from_sums(&tasklet);
        if away && !estimate.is_zero() {
            let pace = took.as_secs_f64() / estimate.as_secs_f64();
            self.pace += PACE_WEIGHT * (pace.clamp(1.0 / MAX_PACE, MAX_PACE) - self.pace);
        }
        self.busy_until = now.saturating_add(at_pace(self.estimated, self.pace));
        Ok(true)
    }

    /// Sets the weight by which the device time of a job is divided from now on.
    pub(crate) fn set_weight(&mut self, id: JobId, weight: NonZeroU32) {
        self.job_mut(id).weight = weight;
    }

    /// Pauses a job: no tasklet of it is a candidate until it is resumed. Those in flight continue.
    pub(crate) fn pause(&mut self, id: JobId) {
        self.job_mut(id).paused = true;
    }

    /// Resumes a job at `now`. It does not catch up on the service that it missed. Has no effect if
    /// the job is not paused.
    pub(crate) fn resume(&mut self, id: JobId, now: Duration) {
        let service = self.service;
        let job = self.job_mut(id);
        if std::mem::take(&mut job.paused) {
            job.returns(now, service);
        }
    }

    /// Makes a job refuse new tasklets. Waiting ones are still launched. Has no effect on a failed
    /// job.
    pub(crate) fn drain(&mut self, id: JobId) {
        let job = self.job_mut(id);
        if job.lifecycle == Lifecycle::Open {
            job.lifecycle = Lifecycle::Draining;
        }
    }

    /// Fails and removes the job at `now`, and returns the number of its tasklets that were in
    /// flight.
    pub(crate) fn forget_job(&mut self, id: JobId, now: Duration) -> usize {
        let in_flight = self.fail(id, now);
        self.jobs.retain(|job| job.id != id);
        in_flight
    }

    /// Marks the job as failed at `now`, drops its tasklets and returns the number of those in
    /// flight.
    pub(crate) fn fail(&mut self, id: JobId, now: Duration) -> usize {
        let job = self.job_mut(id);
        job.lifecycle = Lifecycle::Failed;
        let queue = std::mem::take(&mut job.queue);
        queue.all_in_flight().for_each(|tasklet| self.remove_from_sums(tasklet));
        self.busy_until = now.saturating_add(at_pace(self.estimated, self.pace));
        queue.in_flight()
    }

    /// Returns the number of tasklets in flight, over all jobs.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Returns the number of tasklets of a job in flight; 0 for an unknown job.
    pub(crate) fn in_flight_of(&self, id: JobId) -> usize {
        self.jobs.iter().find(|job| job.id == id).map_or(0, |job| job.queue.in_flight())
    }

    /// Returns whether a job has no tasklets waiting or in flight; `true` for an unknown job.
    pub(crate) fn is_empty(&self, id: JobId) -> bool {
        self.jobs.iter().find(|job| job.id == id).is_none_or(|job| job.queue.is_empty())
    }

    /// Returns the time at which a tasklet launched at `now` is expected to start: when all
    /// tasklets in flight have finished.
    pub(crate) fn free_at(&self, now: Duration) -> Duration {
        if self.in_flight == 0 { now } else { self.busy_until.max(now) }
    }

    /// Returns the expected duration of a tasklet: its estimate (or the piece bound) times the
    /// pace.
    pub(crate) fn expected(&self, tasklet: &Tasklet) -> Duration {
        at_pace(estimate(self.piece, tasklet), self.pace)
    }

    fn is_over_limit(&self, tasklet: &Tasklet) -> bool {
        self.piece.is_some_and(|piece| estimate(self.piece, tasklet) > piece)
    }

    fn remove_from_sums(&mut self, tasklet: &Tasklet) {
        self.in_flight -= 1;
        self.over_limit_in_flight -= usize::from(self.is_over_limit(tasklet));
        self.estimated = self.estimated.saturating_sub(estimate(self.piece, tasklet));
    }

    /// Returns the queue of a job and creates it at the job's first event. A linear search, because
    /// there are few jobs.
    fn job_mut(&mut self, id: JobId) -> &mut JobQueue {
        let place = self.jobs.iter().position(|job| job.id == id).unwrap_or_else(|| {
            self.jobs.push(JobQueue {
                id,
                queue: Queue::default(),
                weight: NonZeroU32::MIN,
                paused: false,
                lifecycle: Lifecycle::Open,
                service: self.service,
                last: Duration::ZERO,
            });
            self.jobs.len() - 1
        });
        &mut self.jobs[place]
    }
}

impl JobQueue {
    /// Marks a job as non-empty again. It does not catch up on the service it missed, and its
    /// waiting time starts now.
    fn returns(&mut self, now: Duration, service: f64) {
        self.service = self.service.max(service);
        self.last = now;
    }
}

/// Returns the expected duration of a tasklet: its estimate, or the piece bound if it has none.
fn estimate(piece: Option<Duration>, tasklet: &Tasklet) -> Duration {
    tasklet.estimate.or(piece).unwrap_or_default()
}

fn at_pace(estimate: Duration, pace: f64) -> Duration {
    seconds(estimate.as_secs_f64() * pace)
}

//! A background job of the driver on a thread. Requests come from its [`Control`], events go to the
//! multiplexer. A tasklet is *offered* from the event that it is ready until it has run.

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::best_times::BestTimes;
use super::control::{Control, Request};
use crate::{Error, JobId, JobState, Multiplexer, MuxEvent, PolledJob, Tasklet, Upcoming};

/// Background job of a [`CpuDriver`](crate::CpuDriver), with its usage and outcome.
pub struct BackgroundJob<B: PolledJob> {
    job: B,
    id: JobId,
    control: Control,
    /// The last request that the multiplexer has been told.
    asked: Request,
    weight: NonZeroU32,
    next_number: u64,
    /// The tasklet that waits in the multiplexer. The job is not polled while there is one.
    offered: Option<Upcoming>,
    /// Whether the job was communicating when it was last polled.
    communicates: bool,
    best_times: BestTimes,
    busy: Duration,
    tasklets: u64,
    outcome: Option<JobOutcome<B::Error>>,
}

/// Reason for which a background job has ended. `E` is the error type of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobOutcome<E> {
    /// The job reported that it has no more tasklets.
    Finished,
    /// The job was [drained](Control::drain).
    Drained,
    /// The job returned this error. It is not polled or run again.
    Failed(E),
    /// The job panicked with this message. It is not polled or run again.
    Panicked(String),
    /// The multiplexer refused one of the job's events. This indicates an error in this crate.
    Refused(Error),
}

impl<B: PolledJob> BackgroundJob<B> {
    /// Creates a job that has not been polled. `id` is the identifier under which the multiplexer
    /// knows it.
    pub(super) fn new(job: B, id: JobId, control: Control) -> Self {
        Self {
            job,
            id,
            control,
            asked: Request::default(),
            weight: NonZeroU32::MIN,
            next_number: 0,
            offered: None,
            communicates: false,
            best_times: BestTimes::default(),
            busy: Duration::ZERO,
            tasklets: 0,
            outcome: None,
        }
    }

    /// Returns the job that was added, also after it has ended.
    #[must_use]
    pub fn job(&self) -> &B {
        &self.job
    }

    /// Returns the job that was added, or `None` if it has ended.
    pub(super) fn job_mut(&mut self) -> Option<&mut B> {
        self.outcome.is_none().then_some(&mut self.job)
    }

    /// Returns the total measured duration of the job's tasklets over all runs, including time in
    /// which other threads used the core.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// Returns the number of the job's tasklets that have run.
    #[must_use]
    pub fn tasklets(&self) -> u64 {
        self.tasklets
    }

    /// Returns the reason for which the job has ended, or `None` if it has not.
    #[must_use]
    pub fn outcome(&self) -> Option<&JobOutcome<B::Error>> {
        self.outcome.as_ref()
    }

    /// Returns the requests made for the job since the last call, as events for the multiplexer.
    pub(super) fn take_requests(&mut self) -> impl Iterator<Item = MuxEvent> + use<B> {
        let (id, open) = (self.id, self.outcome.is_none());
        let (asked, weight) = (self.control.asked(), self.control.weight());
        let known = std::mem::replace(&mut self.asked, asked);
        let mut ended = None;
        if open {
            self.control.acknowledge(asked);
            ended = (asked.drains() && self.offered.is_none()).then(|| self.ended(JobOutcome::Drained));
        }
        let drained = (open && asked.drains() && !known.drains()).then_some(MuxEvent::Drain(id));
        let held = (open && asked.pauses() != known.pauses())
            .then(|| if asked.pauses() { MuxEvent::Pause(id) } else { MuxEvent::Resume(id) });
        let weighed = (open && self.weight != weight).then(|| {
            self.weight = weight;
            MuxEvent::SetWeight(id, weight)
        });
        // A job that has ended causes no more events.
        drained.into_iter().chain(held).chain(weighed).chain(ended)
    }

    /// Polls the job and returns the event for the multiplexer. Returns `None` if nothing has
    /// become ready or ended. A job whose tasklet already waits, that is paused or drained, or that
    /// has ended is not polled.
    pub(super) fn poll(&mut self) -> Option<MuxEvent> {
        self.communicates = false;
        if self.offered.is_some() || self.outcome.is_some() || self.asked.pauses() || self.asked.drains() {
            return None;
        }
        match caught(|| self.job.poll()) {
            Ok(JobState::Ready(upcoming)) => {
                let tasklet = Tasklet::new(self.id, self.next_number)
                    .at_site(upcoming.site)
                    .estimated(self.best_times.estimate(upcoming));
                self.next_number += 1;
                self.offered = Some(upcoming);
                Some(MuxEvent::Ready(tasklet))
            }
            Ok(JobState::Communicating(_)) => {
                self.communicates = true;
                None
            }
            Ok(JobState::Waiting) => None,
            Ok(JobState::Finished) => Some(self.ended(JobOutcome::Finished)),
            Err(end) => Some(self.ended(end)),
        }
    }

    /// Whether the job was communicating when it was last polled, so that it progresses only when
    /// it is polled.
    pub(super) fn communicates(&self) -> bool {
        self.communicates
    }

    /// Runs the offered tasklet to completion. Returns the event for the multiplexer if the job has
    /// failed or panicked and so ended, and `None` if it continues.
    pub(super) fn run(&mut self) -> Option<MuxEvent> {
        caught(|| self.job.run()).err().map(|end| self.ended(end))
    }

    /// Records that the offered tasklet has run for `took`, and returns the part of that time that
    /// was its own work. `bound` is the maximum duration of a background tasklet, if it is bounded.
    pub(super) fn finish_tasklet(&mut self, took: Duration, bound: Option<Duration>) -> Duration {
        let site = self.offered.take().and_then(|upcoming| upcoming.site);
        let own_part = self.best_times.own_part(site, took, bound);
        self.best_times.learn(site, took);
        self.busy = self.busy.saturating_add(took);
        self.tasklets += 1;
        own_part
    }

    /// Returns the identifier under which the multiplexer knows the job.
    pub(super) fn id(&self) -> JobId {
        self.id
    }

    /// Reports an event of this job at `now` to the multiplexer. If the event is refused, only this
    /// job ends.
    ///
    /// # Errors
    /// The multiplexer's error if it also refuses to forget the job.
    pub(super) fn tell(
        &mut self,
        mux: &mut Multiplexer,
        now: Duration,
        event: MuxEvent,
    ) -> Result<(), Error> {
        mux.handle(now, event).or_else(|error| mux.handle(now, self.ended(JobOutcome::Refused(error))))
    }

    fn ended(&mut self, end: JobOutcome<B::Error>) -> MuxEvent {
        self.outcome = Some(end);
        self.communicates = false;
        self.control.ended();
        MuxEvent::Forget(self.id)
    }
}

impl<B: PolledJob<Error: fmt::Debug>> fmt::Debug for BackgroundJob<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BackgroundJob");
        shown.field("id", &self.id).field("tasklets", &self.tasklets).field("busy", &self.busy);
        shown.field("end", &self.outcome).finish_non_exhaustive()
    }
}

/// Calls a method of a job and converts an error or a panic to an outcome. After a panic the job is
/// not used again, so its possibly inconsistent state is never observed.
fn caught<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<T, JobOutcome<E>> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(JobOutcome::Failed),
        Err(panic) => Err(JobOutcome::Panicked(message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

use std::any::Any;
use std::fmt;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::benchmark::Benchmarks;
use super::control::{Asked, Control};
use crate::{Error, JobId, JobState, Multiplexer, MuxEvent, PolledJob, Tasklet, Upcoming};

/// A background job of a [`CpuDriver`](crate::CpuDriver), with what it has used and how it ended.
pub struct BackgroundJob<B: PolledJob> {
    job: B,
    id: JobId,
    control: Control,
    /// The last request that the multiplexer has been informed of.
    asked: Asked,
    weight: NonZeroU32,
    next_number: u64,
    /// A tasklet that waits in the multiplexer; the job is not asked for another.
    offered: Option<Upcoming>,
    /// It said so when it was asked last.
    communicates: bool,
    benchmarks: Benchmarks,
    busy: Duration,
    tasklets: u64,
    end: Option<End<B::Error>>,
}

/// How a background job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End<E> {
    /// It had no more to do.
    Finished,
    /// It was [drained](Control::drain).
    Drained,
    /// It failed. It is not polled or run again.
    Failed(E),
    /// It panicked, with this message. It is not polled or run again.
    Panicked(String),
    /// What it had to offer was refused. That does not happen, whatever it does.
    Refused(Error),
}

impl<B: PolledJob> BackgroundJob<B> {
    pub(super) fn new(job: B, id: JobId, control: Control) -> Self {
        Self {
            job,
            id,
            control,
            asked: Asked::default(),
            weight: NonZeroU32::MIN,
            next_number: 0,
            offered: None,
            communicates: false,
            benchmarks: Benchmarks::default(),
            busy: Duration::ZERO,
            tasklets: 0,
            end: None,
        }
    }

    /// The job.
    #[must_use]
    pub fn job(&self) -> &B {
        &self.job
    }

    /// The job, unless it has ended.
    pub(super) fn job_mut(&mut self) -> Option<&mut B> {
        self.end.is_none().then_some(&mut self.job)
    }

    /// How long its tasklets have run, all together.
    #[must_use]
    pub fn busy(&self) -> Duration {
        self.busy
    }

    /// How many of its tasklets have run.
    #[must_use]
    pub fn tasklets(&self) -> u64 {
        self.tasklets
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn end(&self) -> Option<&End<B::Error>> {
        self.end.as_ref()
    }

    /// What has been asked of the job since the last call, as events for the multiplexer.
    pub(super) fn take_requests(&mut self) -> impl Iterator<Item = MuxEvent> + use<B> {
        let (id, open) = (self.id, self.end.is_none());
        let (asked, weight) = (self.control.asked(), self.control.weight());
        let known = std::mem::replace(&mut self.asked, asked);
        let mut ended = None;
        if open {
            self.control.acknowledge(asked);
            ended = (asked.drains() && self.offered.is_none()).then(|| self.ended(End::Drained));
        }
        let drained = (open && asked.drains() && !known.drains()).then_some(MuxEvent::Drain(id));
        let held = (open && asked.pauses() != known.pauses())
            .then(|| if asked.pauses() { MuxEvent::Pause(id) } else { MuxEvent::Resume(id) });
        let weighed = (open && self.weight != weight).then(|| {
            self.weight = weight;
            MuxEvent::Weigh(id, weight)
        });
        // A job that has ended causes no more events.
        drained.into_iter().chain(held).chain(weighed).chain(ended)
    }

    /// Polls the job, unless a tasklet of it waits already, and gives the event for the multiplexer, if there is one.
    pub(super) fn ask(&mut self) -> Option<MuxEvent> {
        self.communicates = false;
        if self.offered.is_some() || self.end.is_some() || self.asked.pauses() || self.asked.drains() {
            return None;
        }
        match caught(|| self.job.poll()) {
            Ok(JobState::Ready(upcoming)) => {
                let tasklet = Tasklet::new(self.id, self.next_number)
                    .at_site(upcoming.site)
                    .estimated(self.benchmarks.estimate(upcoming));
                self.next_number += 1;
                self.offered = Some(upcoming);
                Some(MuxEvent::Ready(tasklet))
            }
            Ok(JobState::Communicating(_)) => {
                self.communicates = true;
                None
            }
            Ok(JobState::Waiting) => None,
            Ok(JobState::Finished) => Some(self.ended(End::Finished)),
            Err(end) => Some(self.ended(end)),
        }
    }

    /// Whether it can only go on when it is asked again.
    pub(super) fn communicates(&self) -> bool {
        self.communicates
    }

    /// Runs the tasklet that was offered. If the job has ended with it: the event for the multiplexer.
    pub(super) fn run(&mut self) -> Option<MuxEvent> {
        caught(|| self.job.run()).err().map(|end| self.ended(end))
    }

    /// Records that the tasklet that was offered has run, and gives how much of that time was its own work.
    pub(super) fn ran(&mut self, took: Duration, bound: Option<Duration>) -> Duration {
        let site = self.offered.take().and_then(|upcoming| upcoming.site);
        let own_part = self.benchmarks.own_part(site, took, bound);
        self.benchmarks.learn(site, took);
        self.busy = self.busy.saturating_add(took);
        self.tasklets += 1;
        own_part
    }

    pub(super) fn id(&self) -> JobId {
        self.id
    }

    /// Tells the multiplexer something of it. What is refused ends the job, and nothing else.
    pub(super) fn tell(
        &mut self,
        mux: &mut Multiplexer,
        now: Duration,
        event: MuxEvent,
    ) -> Result<(), Error> {
        mux.handle(now, event).or_else(|error| mux.handle(now, self.ended(End::Refused(error))))
    }

    fn ended(&mut self, end: End<B::Error>) -> MuxEvent {
        self.end = Some(end);
        self.communicates = false;
        self.control.ended();
        MuxEvent::Forget(self.id)
    }
}

impl<B: PolledJob<Error: fmt::Debug>> fmt::Debug for BackgroundJob<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("BackgroundJob");
        shown.field("id", &self.id).field("tasklets", &self.tasklets).field("busy", &self.busy);
        shown.field("end", &self.end).finish_non_exhaustive()
    }
}

/// What a job returns, or how that ended it. After a panic the job is not touched again, so that
/// what the panic left of it is never used.
fn caught<T, E>(call: impl FnOnce() -> Result<T, E>) -> Result<T, End<E>> {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result.map_err(End::Failed),
        Err(panic) => Err(End::Panicked(message(&*panic))),
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".into())
}

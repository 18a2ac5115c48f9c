use std::any::Any;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::benchmark::Benchmarks;
use super::control::{Control, Mode};
use crate::{Event, Job, JobId, JobState, Tasklet, Upcoming};

/// A background job of a [`CpuDriver`](crate::CpuDriver), and what has become of it.
pub struct BackgroundJob<B: Job> {
    job: B,
    id: JobId,
    control: Control,
    /// What the multiplexer has been told.
    mode: Mode,
    weight: NonZeroU32,
    next_number: u64,
    /// A tasklet that waits in the multiplexer; the job is not asked for another.
    offered: Option<Upcoming>,
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
    /// It failed. It is left alone from then on.
    Failed(E),
    /// It panicked, with this message. It is left alone from then on.
    Panicked(String),
}

impl<B: Job> BackgroundJob<B> {
    pub(super) fn new(job: B, index: usize, control: Control) -> Self {
        let index = u32::try_from(index).unwrap_or(u32::MAX);
        Self {
            job,
            id: JobId::background(index),
            control,
            mode: Mode::Run,
            weight: NonZeroU32::MIN,
            next_number: 0,
            offered: None,
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

    /// What the multiplexer is to be told of what has been asked for since the last time.
    pub(super) fn obey(&mut self) -> impl Iterator<Item = Event> + use<B> {
        let (mode, weight) = (self.control.mode(), self.control.weight());
        let id = self.id;
        let mode = (self.end.is_none() && self.mode != mode).then(|| {
            self.mode = mode;
            self.control.set_at_rest(mode == Mode::Pause);
            match mode {
                Mode::Run => Event::Resume(id),
                Mode::Pause => Event::Pause(id),
                Mode::Drain => Event::Drain(id),
            }
        });
        let weight = (self.weight != weight).then(|| {
            self.weight = weight;
            Event::Weigh(id, weight)
        });
        if self.mode == Mode::Drain && self.offered.is_none() && self.end.is_none() {
            self.ended(End::Drained);
        }
        mode.into_iter().chain(weight)
    }

    /// Asks the job what it has to offer, unless it has offered something; what the multiplexer is to be told of it.
    pub(super) fn ask(&mut self) -> Option<Event> {
        if self.offered.is_some() || self.end.is_some() || self.mode != Mode::Run {
            return None;
        }
        match caught(|| self.job.poll()) {
            Ok(JobState::Ready(upcoming)) => {
                let tasklet = Tasklet::new(self.id, self.next_number)
                    .at_site(upcoming.site)
                    .estimated(self.benchmarks.estimate(upcoming));
                self.next_number += 1;
                self.offered = Some(upcoming);
                return Some(Event::Ready(tasklet));
            }
            Ok(JobState::Communicating(_) | JobState::Waiting) => {}
            Ok(JobState::Finished) => self.ended(End::Finished),
            Err(end) => {
                self.ended(end);
                return Some(Event::Failed(self.id));
            }
        }
        None
    }

    /// Runs the tasklet that was offered. False when that was the job's end.
    pub(super) fn run(&mut self) -> bool {
        caught(|| self.job.run()).map_err(|end| self.ended(end)).is_ok()
    }

    /// Takes down that the tasklet that was offered has run, and says how much of that time was its own work.
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

    fn ended(&mut self, end: End<B::Error>) {
        self.end = Some(end);
        self.control.set_at_rest(true);
    }
}

/// What a job says, or how that ended it. After a panic the job is not touched again, so nobody sees what the panic
/// left of it.
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

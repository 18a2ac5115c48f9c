//! The driver that runs jobs on a thread, the *worker*. An *idle period* is a period in which the
//! foreground does not compute.

mod background;
mod best_times;
mod clock;
mod control;
mod foreground;
mod share;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;
use std::time::Duration;

pub use background::{BackgroundJob, JobOutcome};
use clock::Clock;
pub use control::Control;
use control::WorkerState;
use foreground::Foreground;
pub use share::share;

use crate::idle::Wait;
use crate::{
    Error, Idle, JobId, JobState, Multiplexer, MuxCommand, MuxEvent, Policy, PolledJob, TaskletId, Usage,
};

/// Runs a foreground and any number of background jobs on the calling thread, as a [`Multiplexer`]
/// decides.
///
/// Tasklets run one at a time and are never interrupted. The foreground is polled after every
/// tasklet, so it waits for at most one background tasklet; background jobs should cut their work
/// to [`Policy::background_piece`]. After a background tasklet the thread yields its core, because
/// the foreground of another worker may be waiting for it.
///
/// A thread has no streams, graphs or launch latency. Of the [`Policy`], only the limit on
/// background in flight (zero or more), the communication rule, feedback and `Policy::idle_periods`
/// have an effect. Durations of tasklets and idle periods are learned by
/// [site](crate::Upcoming::site).
///
/// A background job does not affect the foreground. A job that finishes, fails or panics (unless
/// panics abort the program) is not run again; [`background`](Self::background) shows its outcome.
/// A job that has nothing to do is polled again whenever the foreground has nothing to do. A panic
/// of the foreground is not caught.
///
/// ```
/// use gpu_mux::{CpuDriver, Error, Policy, job_fn};
/// use std::{num::NonZeroU32, task::Poll};
///
/// let request = |n: i32| if n % 2 == 0 { Poll::Pending } else { Poll::Ready(Some(n)) };
/// let mut requests = (0..100).map(request);
/// let next = || requests.next().unwrap_or(Poll::Ready(None));
/// let mut foreground = job_fn(next, |_request| Ok::<(), Error>(()));
///
/// let endless = || job_fn(|| Poll::Ready(Some(())), |()| Ok::<(), Error>(()));
/// let mut driver = CpuDriver::new(Policy::default());
/// driver.add(endless());
/// driver.add(endless()).set_weight(NonZeroU32::MIN.saturating_add(2));
/// let usage = driver.run(&mut foreground)?;
/// assert_eq!(usage.foreground_tasklets, 50);
/// assert!(driver.background().iter().all(|job| job.outcome().is_none()));
/// # Ok::<(), Error>(())
/// ```
pub struct CpuDriver<B: PolledJob> {
    mux: Multiplexer,
    idle: Idle,
    worker: Arc<WorkerState>,
    clock: Clock,
    foreground: Foreground,
    background: Vec<BackgroundJob<B>>,
    /// A background tasklet that has run and has not been reported to the multiplexer yet.
    ran: Option<FinishedBackground>,
    /// Wake-up time requested by the multiplexer.
    wake: Option<Duration>,
    usage: Usage,
}

impl<B: PolledJob> CpuDriver<B> {
    /// Creates a driver with this policy and without background jobs. It waits as [`Idle::Yield`]
    /// says.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            idle: Idle::default(),
            worker: Arc::default(),
            clock: Clock::default(),
            foreground: Foreground::default(),
            background: Vec::new(),
            ran: None,
            wake: None,
            usage: Usage::default(),
        }
    }

    /// Sets the behaviour of the driver while no job has anything to run.
    #[must_use]
    pub fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// Adds a background job, which runs in the idle periods of every later foreground, and returns
    /// its control.
    pub fn add(&mut self, job: B) -> Control {
        let control = Control::new(Arc::clone(&self.worker));
        // The multiplexer removes a job when it ends, so an id that is free here is free there.
        let is_free = |id: &JobId| self.background.iter().all(|job| job.id() != *id);
        let id = (0..u32::MAX).map(JobId::background).find(is_free).unwrap_or(JobId::background(u32::MAX));
        self.background.push(BackgroundJob::new(job, id, control.clone()));
        control
    }

    /// Removes and returns the background jobs that have ended, in the order in which they were
    /// added.
    pub fn take_ended(&mut self) -> Vec<BackgroundJob<B>> {
        let jobs = std::mem::take(&mut self.background);
        let (ended, left) = jobs.into_iter().partition(|job| job.outcome().is_some());
        self.background = left;
        ended
    }

    /// Returns the background jobs in the order in which they were added.
    #[must_use]
    pub fn background(&self) -> &[BackgroundJob<B>] {
        &self.background
    }

    /// Iterates mutably over the background jobs in the order in which they were added, for changes
    /// between runs; `None` for a job that has ended. If a job has announced a tasklet, that will
    /// be [run](PolledJob::run), so the job must still have it.
    pub fn background_mut(&mut self) -> impl Iterator<Item = Option<&mut B>> {
        self.background.iter_mut().map(BackgroundJob::job_mut)
    }

    /// Returns a waker that wakes the worker, which is needed for [`Idle::Park`].
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.worker.signal))
    }

    /// Runs a foreground until it has finished, with the background in its idle periods, and
    /// returns the breakdown of the run's time.
    ///
    /// Learned durations are kept for the next run.
    ///
    /// # Errors
    /// The foreground's error. `F::Error` must accept this crate's [`Error`] for the case that the
    /// multiplexer refuses an event of the foreground, which would be an error in this crate.
    pub fn run<F>(&mut self, foreground: &mut F) -> Result<Usage, F::Error>
    where
        F: PolledJob + ?Sized,
        F::Error: From<Error>,
    {
        self.clock.start();
        self.worker.runs.store(true, Ordering::SeqCst);
        let (began, over_limit) = (self.clock.now(), self.mux.over_limit());
        self.usage = Usage::default();
        let result = catch_unwind(AssertUnwindSafe(|| self.work(foreground)));
        self.clock.stop();
        self.worker.runs.store(false, Ordering::SeqCst);
        let ended = self.clock.now();
        self.tell_what_ran()?;
        // A foreground that has failed or panicked leaves tasklets in flight.
        self.foreground.abort_all(ended).try_for_each(|event| self.mux.handle(ended, event))?;
        result.unwrap_or_else(|panic| resume_unwind(panic))?;
        let elapsed = ended.saturating_sub(began);
        Ok(Usage { elapsed, over_limit: self.mux.over_limit() - over_limit, ..self.usage })
    }

    fn work<F>(&mut self, foreground: &mut F) -> Result<(), F::Error>
    where
        F: PolledJob + ?Sized,
        F::Error: From<Error>,
    {
        let mut wait = Wait::new(self.idle);
        loop {
            // Read before polling, so that a wake-up during polling is not lost.
            let seen = self.worker.signal.count();
            // The foreground is polled before every command, because the multiplexer must know its
            // state.
            let state = foreground.poll()?;
            let launched = self.observe(state)?;
            if state == JobState::Finished {
                return Ok(());
            }
            self.observe_background(launched.is_none())?;
            let Some(tasklet) = launched.map_or_else(|| self.next(), |tasklet| Ok(Some(tasklet)))? else {
                let communicates = matches!(state, JobState::Communicating(_))
                    || self.background.iter().any(BackgroundJob::communicates);
                wait.wait(self.until_wake(), communicates, &self.worker.signal, seen);
                continue;
            };
            wait.reset();
            if tasklet.job.is_foreground() {
                self.run_foreground(foreground)?;
            } else {
                self.run_background(tasklet);
            }
        }
    }

    /// Reports the foreground's state, and the background tasklet that has just run, to the
    /// multiplexer. Returns the foreground tasklet that is ready to run.
    fn observe(&mut self, state: JobState) -> Result<Option<TaskletId>, Error> {
        let now = self.clock.now();
        if let JobState::Ready(upcoming) = state {
            // It is unknown when the foreground became ready while a background tasklet ran. The
            // estimate is the middle of that tasklet's own work. If other threads had the core in
            // between, the foreground would have lost that time too.
            let back = self.ran.as_ref().map_or(now, |ran| ran.ended.saturating_sub(ran.own_part / 2));
            self.tell(back, |foreground| foreground.finish_communication(back))?;
            self.tell(back, |foreground| Some(foreground.offer_compute(upcoming, back)))?;
            // Launched before the end of the background tasklet is reported, so that it counts as a
            // delay.
            let launched = self.launch();
            self.tell_what_ran()?;
            return Ok(launched);
        }
        self.tell_what_ran()?;
        self.tell(now, |foreground| match state {
            JobState::Communicating(upcoming) => foreground.start_communication(upcoming, now),
            _ => foreground.finish_communication(now),
        })?;
        Ok(None)
    }

    /// Reports requests for background jobs to the multiplexer and, if `poll`, polls the jobs.
    fn observe_background(&mut self, poll: bool) -> Result<(), Error> {
        for job in &mut self.background {
            let asked = job.take_requests();
            let offered = if poll { job.poll() } else { None };
            for event in asked.chain(offered) {
                job.tell(&mut self.mux, self.clock.now(), event)?;
            }
        }
        Ok(())
    }

    fn tell(
        &mut self,
        now: Duration,
        what: impl FnOnce(&mut Foreground) -> Option<MuxEvent>,
    ) -> Result<(), Error> {
        what(&mut self.foreground).map_or(Ok(()), |event| self.mux.handle(now, event))
    }

    fn tell_what_ran(&mut self) -> Result<(), Error> {
        let Some(ran) = self.ran.take() else { return Ok(()) };
        match self.background.iter_mut().find(|job| job.id() == ran.job) {
            Some(job) => job.tell(&mut self.mux, ran.ended, ran.event),
            None => Ok(()),
        }
    }

    /// Returns the tasklet to run now, if there is one.
    fn next(&mut self) -> Result<Option<TaskletId>, Error> {
        let now = self.clock.now();
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            self.mux.handle(now, MuxEvent::Tick)?;
        }
        Ok(self.launch())
    }

    /// Returns the tasklet that the multiplexer launches, if it launches one.
    fn launch(&mut self) -> Option<TaskletId> {
        while let Some(command) = self.mux.poll_command() {
            match command {
                MuxCommand::WakeAt(time) => self.wake = Some(time),
                // Communication runs without the driver.
                MuxCommand::Launch(id) if id.job.is_foreground() && !self.foreground.is_compute(id) => {}
                MuxCommand::Launch(id) => return Some(id),
            }
        }
        None
    }

    fn until_wake(&self) -> Option<Duration> {
        self.wake.map(|wake| wake.saturating_sub(self.clock.now()))
    }

    fn run_foreground<F>(&mut self, foreground: &mut F) -> Result<(), F::Error>
    where
        F: PolledJob + ?Sized,
        F::Error: From<Error>,
    {
        let began = self.clock.now();
        self.foreground.start_compute(began);
        foreground.run()?;
        let ended = self.clock.now();
        self.usage.record(JobId::FOREGROUND, ended.saturating_sub(began));
        Ok(self.tell(ended, |foreground| foreground.finish_compute(ended))?)
    }

    fn run_background(&mut self, tasklet: TaskletId) {
        let Some(job) = self.background.iter_mut().find(|job| job.id() == tasklet.job) else { return };
        let began = self.clock.now();
        let end = job.run();
        let ended = self.clock.now();
        let took = ended.saturating_sub(began);
        let own_part = job.finish_tasklet(took, self.mux.policy().background_piece);
        self.usage.record(tasklet.job, took);
        let event = end.unwrap_or(MuxEvent::Finished { tasklet, took });
        self.ran = Some(FinishedBackground { job: tasklet.job, ended, own_part, event });
        // The foreground of another worker may be waiting for this core.
        std::thread::yield_now();
    }
}

impl<B: PolledJob<Error: fmt::Debug>> fmt::Debug for CpuDriver<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("CpuDriver");
        shown.field("policy", self.mux.policy()).field("idle", &self.idle);
        shown.field("background", &self.background).field("usage", &self.usage).finish_non_exhaustive()
    }
}

/// A background tasklet that has run.
#[derive(Debug)]
struct FinishedBackground {
    job: JobId,
    ended: Duration,
    /// The part of its duration that was its own work.
    own_part: Duration,
    event: MuxEvent,
}

//! The driver of a thread.

mod background;
mod benchmark;
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

pub use background::{BackgroundJob, End};
use clock::Clock;
pub use control::Control;
use control::Worker;
use foreground::Foreground;
pub use share::share;

use crate::idle::Wait;
use crate::{
    Error, Idle, JobId, JobState, Multiplexer, MuxCommand, MuxEvent, Policy, PolledJob, TaskletId, Usage,
};

/// Runs a foreground and any number of background jobs on the calling thread, as a [`Multiplexer`] decides.
///
/// Tasklets run one at a time and are never interrupted. The foreground is polled after every one, so it waits for
/// at most one background tasklet; how long that is, is up to the background job, which should cut its work to
/// [`Policy::background_piece`]. After a background tasklet the thread yields its core: where several workers share
/// cores, the foreground of one of them may be waiting for it.
///
/// A thread has no streams, no graphs and no launch latency, so of the [`Policy`] only the limit on background in
/// flight (zero or more), communication, feedback and gap fitting have an effect. What the last two need to know of a
/// [site](crate::Upcoming::site) is learned.
///
/// A background job never touches the foreground: one that finishes, fails or panics (unless panics abort the program)
/// is not run again, as [`background`](Self::background) shows, and one that has nothing to do is asked
/// again whenever the foreground has nothing to do either. A panic of the foreground is not caught.
///
/// ```
/// use gpu_mux::{CpuDriver, Error, Policy, job_fn};
/// use std::{num::NonZeroU32, task::Poll};
///
/// let mut requests = (0..100).map(|n| if n % 2 == 0 { Poll::Pending } else { Poll::Ready(Some(n)) });
/// let next = || requests.next().unwrap_or(Poll::Ready(None));
/// let mut foreground = job_fn(next, |_request| Ok::<(), Error>(()));
///
/// let endless = || job_fn(|| Poll::Ready(Some(())), |()| Ok::<(), Error>(()));
/// let mut driver = CpuDriver::new(Policy::default());
/// driver.add(endless());
/// driver.add(endless()).weigh(NonZeroU32::MIN.saturating_add(2));
/// let usage = driver.run(&mut foreground)?;
/// assert_eq!(usage.foreground_tasklets, 50);
/// assert!(driver.background().iter().all(|job| job.end().is_none()));
/// # Ok::<(), Error>(())
/// ```
pub struct CpuDriver<B: PolledJob> {
    mux: Multiplexer,
    idle: Idle,
    worker: Arc<Worker>,
    clock: Clock,
    foreground: Foreground,
    background: Vec<BackgroundJob<B>>,
    /// What has run and has not been reported to the multiplexer yet.
    ran: Option<Ran>,
    /// When the multiplexer wants to be asked again.
    wake: Option<Duration>,
    usage: Usage,
}

impl<B: PolledJob> CpuDriver<B> {
    /// A driver with these rules that waits as [`Idle::Yield`] does, without background jobs.
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

    /// The same driver that waits like this while no job has anything to run.
    #[must_use]
    pub fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// Adds a background job, which runs in the gaps of every foreground from now on, and gives what controls it.
    pub fn add(&mut self, job: B) -> Control {
        let control = Control::new(Arc::clone(&self.worker));
        // The multiplexer forgets a job when it ends, so an id that is free here is free there.
        let is_free = |id: &JobId| self.background.iter().all(|job| job.id() != *id);
        let id = (0..u32::MAX).map(JobId::background).find(is_free).unwrap_or(JobId::background(u32::MAX));
        self.background.push(BackgroundJob::new(job, id, control.clone()));
        control
    }

    /// Takes the background jobs out that have ended, in the order in which they were added.
    pub fn take_ended(&mut self) -> Vec<BackgroundJob<B>> {
        let jobs = std::mem::take(&mut self.background);
        let (ended, left) = jobs.into_iter().partition(|job| job.end().is_some());
        self.background = left;
        ended
    }

    /// The background jobs in the order in which they were added.
    #[must_use]
    pub fn background(&self) -> &[BackgroundJob<B>] {
        &self.background
    }

    /// The background jobs in the order in which they were added, for what is done with them between runs; `None` for one that has
    /// ended. The next tasklet of a job may have been announced, and will be [run](PolledJob::run): it must still have one.
    pub fn background_mut(&mut self) -> impl Iterator<Item = Option<&mut B>> {
        self.background.iter_mut().map(BackgroundJob::job_mut)
    }

    /// Wakes a worker that waits as [`Idle::Park`] says.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.worker.signal))
    }

    /// Runs a foreground until it has finished, and the background in its gaps; says where the time of this run went.
    ///
    /// What has been learned stays for the next run. When the foreground fails its error is returned. `F::Error` takes
    /// in this crate's [`Error`] for the case that the multiplexer refuses an event of the foreground; that does
    /// not happen, whatever the jobs do.
    pub fn run<F>(&mut self, foreground: &mut F) -> Result<Usage, F::Error>
    where
        F: PolledJob + ?Sized,
        F::Error: From<Error>,
    {
        self.clock.start();
        self.worker.runs.store(true, Ordering::SeqCst);
        let (began, over_long) = (self.clock.now(), self.mux.over_long());
        self.usage = Usage::default();
        let result = catch_unwind(AssertUnwindSafe(|| self.work(foreground)));
        self.clock.stop();
        self.worker.runs.store(false, Ordering::SeqCst);
        let ended = self.clock.now();
        self.tell_what_ran()?;
        // A foreground that has failed or panicked leaves something open.
        self.foreground.aborted(ended).try_for_each(|event| self.mux.handle(ended, event))?;
        result.unwrap_or_else(|panic| resume_unwind(panic))?;
        let elapsed = ended.saturating_sub(began);
        Ok(Usage { elapsed, over_long: self.mux.over_long() - over_long, ..self.usage })
    }

    fn work<F>(&mut self, foreground: &mut F) -> Result<(), F::Error>
    where
        F: PolledJob + ?Sized,
        F::Error: From<Error>,
    {
        let mut wait = Wait::new(self.idle);
        loop {
            // A wake-up while the jobs are polled must not be lost.
            let seen = self.worker.signal.count();
            // The foreground is asked before every command: the multiplexer must know what it has to hold back.
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

    /// Tells the multiplexer the state of the foreground, and what has run since it was last polled. Gives the tasklet that
    /// is ready to run.
    fn observe(&mut self, state: JobState) -> Result<Option<TaskletId>, Error> {
        let now = self.clock.now();
        if let JobState::Ready(upcoming) = state {
            // When the foreground became ready while a background tasklet ran is unknown: it is taken to have waited for
            // half of it. Where the core was taken away meanwhile, the foreground would have lost it too.
            let back = self.ran.as_ref().map_or(now, |ran| ran.ended.saturating_sub(ran.own_part / 2));
            self.tell(back, |foreground| foreground.communicated(back))?;
            self.tell(back, |foreground| Some(foreground.computes(upcoming, back)))?;
            // Launched before the end of what it had to wait for is reported, so that it counts as a delay.
            let launched = self.launch();
            self.tell_what_ran()?;
            return Ok(launched);
        }
        self.tell_what_ran()?;
        self.tell(now, |foreground| match state {
            JobState::Communicating(upcoming) => foreground.communicates(upcoming, now),
            _ => foreground.communicated(now),
        })?;
        Ok(None)
    }

    /// Tells the multiplexer what is asked of the background jobs, and, when `ask`, what they have to offer.
    fn observe_background(&mut self, ask: bool) -> Result<(), Error> {
        for job in &mut self.background {
            let asked = job.take_requests();
            let offered = if ask { job.ask() } else { None };
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

    /// What to run now, if anything.
    fn next(&mut self) -> Result<Option<TaskletId>, Error> {
        let now = self.clock.now();
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            self.mux.handle(now, MuxEvent::Tick)?;
        }
        Ok(self.launch())
    }

    /// The tasklet that the multiplexer launches, if it does.
    fn launch(&mut self) -> Option<TaskletId> {
        while let Some(command) = self.mux.poll_command() {
            match command {
                MuxCommand::WakeAt(time) => self.wake = Some(time),
                // Communication goes on by itself.
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
        self.foreground.runs(began);
        foreground.run()?;
        let ended = self.clock.now();
        self.usage.record(JobId::FOREGROUND, ended.saturating_sub(began));
        Ok(self.tell(ended, |foreground| foreground.ran(ended))?)
    }

    fn run_background(&mut self, tasklet: TaskletId) {
        let Some(job) = self.background.iter_mut().find(|job| job.id() == tasklet.job) else { return };
        let began = self.clock.now();
        let end = job.run();
        let ended = self.clock.now();
        let took = ended.saturating_sub(began);
        let own_part = job.ran(took, self.mux.policy().background_piece);
        self.usage.record(tasklet.job, took);
        let event = end.unwrap_or(MuxEvent::Finished { tasklet, took });
        self.ran = Some(Ran { job: tasklet.job, ended, own_part, event });
        // Where workers share cores, another one's foreground may be waiting for this core.
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
struct Ran {
    job: JobId,
    ended: Duration,
    /// How much of its time was its own work.
    own_part: Duration,
    event: MuxEvent,
}

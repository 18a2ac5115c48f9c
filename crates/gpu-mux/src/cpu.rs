use std::time::{Duration, Instant};

use crate::idle::Wait;
use crate::{
    Command, Error, Event, Idle, Job, JobId, JobState, Multiplexer, Policy, Tasklet, TaskletId, Usage,
};

/// Runs a foreground and a background job on the calling thread, as a [`Multiplexer`] decides.
///
/// Tasklets run one at a time and are never interrupted. The foreground is polled after every one, so it waits for
/// at most one background tasklet; how long that is, is up to the background job, which should cut its work to
/// [`Policy::background_piece`]. After a background tasklet the thread offers its core to others: where several workers
/// share cores, the foreground of one of them may be waiting for it.
#[derive(Debug, Clone)]
pub struct CpuDriver {
    policy: Policy,
    idle: Idle,
}

/// How a run of [`CpuDriver::run`] went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome<E> {
    /// Where the time went.
    pub usage: Usage,
    /// What ended the background job before the foreground had finished, if it failed.
    pub background_error: Option<E>,
}

impl CpuDriver {
    /// A driver with these rules that waits as [`Idle::Yield`] does.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        Self { policy, idle: Idle::default() }
    }

    /// The same driver that waits like this while neither job has anything to run.
    #[must_use]
    pub fn idle(self, idle: Idle) -> Self {
        Self { idle, ..self }
    }

    /// Runs both jobs until the foreground has finished; without a background, the foreground alone.
    ///
    /// When the foreground fails its error is returned. The background never touches the foreground: when it
    /// finishes or fails it is left alone for the rest of the run, and an error is handed over in the
    /// [`Outcome`]. The background may be run on, or together with another foreground, by calling again. A panic
    /// of either job is not caught.
    ///
    /// `F::Error` takes in this crate's [`Error`] for the case that the multiplexer refuses an event; that does
    /// not happen, whatever the jobs do.
    pub fn run<F, B>(
        &self,
        foreground: &mut F,
        background: Option<&mut B>,
    ) -> Result<Outcome<B::Error>, F::Error>
    where
        F: Job + ?Sized,
        F::Error: From<Error>,
        B: Job + ?Sized,
    {
        let mut worker = Worker::new(self.policy);
        let mut wait = Wait::new(self.idle);
        let mut background = background;
        let mut background_error = None;
        loop {
            // The foreground is asked before every command: the multiplexer must know what it has to hold back.
            let state = foreground.poll()?;
            worker.background_ran(matches!(state, JobState::Ready(_)))?;
            match state {
                JobState::Ready(estimate) => worker.offer(JobId::FOREGROUND, estimate)?,
                JobState::Waiting if worker.background_offered => {}
                JobState::Waiting => match background.as_mut().map(|job| job.poll()) {
                    Some(Ok(JobState::Ready(estimate))) => worker.offer(JobId::BACKGROUND, estimate)?,
                    Some(Ok(JobState::Finished)) => background = None,
                    Some(Err(error)) => (background, background_error) = (None, Some(error)),
                    Some(Ok(JobState::Waiting)) | None => {}
                },
                JobState::Finished => break,
            }
            let Some(tasklet) = worker.next()? else {
                wait.wait(worker.until_wake());
                continue;
            };
            wait.reset();
            let started = Instant::now();
            if tasklet.job.is_foreground() {
                foreground.run()?;
            } else if let Some(Err(error)) = background.as_mut().map(|job| job.run()) {
                (background, background_error) = (None, Some(error));
            }
            worker.finish(tasklet, started)?;
            if !tasklet.job.is_foreground() {
                // Where workers share cores, another one's foreground may be waiting for this core.
                std::thread::yield_now();
            }
        }
        Ok(Outcome { usage: worker.usage(), background_error })
    }
}

/// The multiplexer of one run, with the thread's clock.
struct Worker {
    mux: Multiplexer,
    epoch: Instant,
    next_number: u64,
    /// The background has a tasklet waiting in the multiplexer, and is not asked for another.
    background_offered: bool,
    wake: Option<Duration>,
    /// A background tasklet that has run, which the multiplexer has not been told: when, and how long it took.
    ran: Option<(TaskletId, Duration, Duration)>,
    /// When the foreground is taken to have come back.
    came_back: Option<Duration>,
    usage: Usage,
}

impl Worker {
    fn new(policy: Policy) -> Self {
        Self {
            mux: Multiplexer::new(policy),
            epoch: Instant::now(),
            next_number: 0,
            background_offered: false,
            wake: None,
            ran: None,
            came_back: None,
            usage: Usage::default(),
        }
    }

    fn offer(&mut self, job: JobId, estimate: Option<Duration>) -> Result<(), Error> {
        let tasklet = Tasklet::new(job, self.next_number).estimated(estimate);
        self.next_number += 1;
        self.background_offered |= !job.is_foreground();
        let ready = if job.is_foreground() { self.came_back.take() } else { None };
        self.mux.handle(ready.unwrap_or_else(|| self.epoch.elapsed()), Event::Ready(tasklet))?;
        self.tell_background_ran()
    }

    /// The foreground has been asked again. When it has come back while a background tasklet ran, nobody knows when:
    /// it is taken to have waited for half of it.
    fn background_ran(&mut self, foreground_is_back: bool) -> Result<(), Error> {
        if !foreground_is_back {
            return self.tell_background_ran();
        }
        self.came_back = self.ran.map(|(_, finished, took)| finished.saturating_sub(took / 2));
        Ok(())
    }

    fn tell_background_ran(&mut self) -> Result<(), Error> {
        self.ran.take().map_or(Ok(()), |(tasklet, finished, took)| {
            self.mux.handle(finished, Event::Finished { tasklet, took })
        })
    }

    /// What to run now, if anything.
    fn next(&mut self) -> Result<Option<TaskletId>, Error> {
        let now = self.epoch.elapsed();
        if self.wake.is_some_and(|wake| wake <= now) {
            self.wake = None;
            self.mux.handle(now, Event::Tick)?;
        }
        while let Some(command) = self.mux.poll_command() {
            match command {
                Command::WakeAt(time) => self.wake = Some(time),
                Command::Launch(tasklet) => {
                    self.background_offered &= tasklet.job.is_foreground();
                    return Ok(Some(tasklet));
                }
            }
        }
        Ok(None)
    }

    fn finish(&mut self, tasklet: TaskletId, started: Instant) -> Result<(), Error> {
        let took = started.elapsed();
        self.usage.record(tasklet.job, took);
        let finished = self.epoch.elapsed();
        if tasklet.job.is_foreground() {
            return self.mux.handle(finished, Event::Finished { tasklet, took });
        }
        self.ran = Some((tasklet, finished, took));
        Ok(())
    }

    fn until_wake(&self) -> Option<Duration> {
        self.wake.map(|wake| wake.saturating_sub(self.epoch.elapsed()))
    }

    fn usage(&self) -> Usage {
        Usage { elapsed: self.epoch.elapsed(), over_long: self.mux.over_long(), ..self.usage }
    }
}

//! The source of tasklets for the multiplexer's driver on a GPU: it offers the launch units of the
//! foreground and of background jobs, and receives the finished ones. A *launch unit* is a group of
//! operations that are launched together as one tasklet. Time on the device is relative to an
//! epoch.

use std::time::{Duration, Instant};

use gpu_mux::cuda::{CudaDevice, Work};
use gpu_mux::{Driver, Finished, Host, JobId, Lane, Policy, Tasklet, Usage};

use super::Gpu;
use super::job::Job;
use crate::Error;
use crate::runtime::{BatchSource, Iterations, Observer, TimeSpan};

/// A background job of this rank. It exchanges no data with other ranks, and has no last iteration.
pub(super) struct BackgroundJob<'a, S, O> {
    /// The launch units of the job's programs.
    pub(super) job: Job,
    /// The job's iterations, with program, state and samples.
    pub(super) iterations: Iterations<'a, Gpu, S, O>,
    /// Message of the error that ended the job; `None` if it runs. Other jobs continue.
    pub(super) error: Option<String>,
}

impl<S, O> BackgroundJob<'_, S, O> {
    /// Returns a description of the job's oldest unfinished tasklet, with the label of its first
    /// step; `None` if there is none.
    pub(super) fn in_flight(&self) -> Option<String> {
        let step = self.job.in_flight(&self.iterations)?;
        Some(format!("`{step}` of the background job `{}`", self.iterations.loaded.network()))
    }
}

/// Settings and measurements of one run of the driver.
pub(super) struct Run<'h> {
    /// Rules by which the multiplexer launches tasklets.
    pub(super) policy: &'h Policy,
    /// The instant at which the time of the device is zero.
    pub(super) epoch: Instant,
    /// Busy times and numbers of finished tasklets of the run so far, of foreground and background.
    pub(super) usage: Usage,
}

impl Run<'_> {
    /// Returns the time interval of the tasklet that finished last.
    fn ran(&self, driver: &mut Driver<CudaDevice>, took: Duration) -> Result<TimeSpan, Error> {
        let device = driver.device_mut();
        let end = device.last_end()?.unwrap_or_else(|| gpu_mux::Device::now(device));
        let ended = self.epoch + end;
        Ok(TimeSpan { began: ended.checked_sub(took).unwrap_or(ended), ended })
    }

    fn count(&mut self, is_foreground: bool, lane: Lane, took: Duration) {
        let usage = &mut self.usage;
        match (is_foreground, lane) {
            (true, Lane::Compute) => {
                usage.foreground_busy += took;
                usage.foreground_tasklets += 1;
            }
            (true, Lane::Communication) => {}
            (false, _) => {
                usage.background_busy += took;
                usage.background_tasklets += 1;
                usage.longest_background = usage.longest_background.max(took);
                usage.over_limit += u64::from(self.policy.background_piece.is_some_and(|piece| took > piece));
            }
        }
    }
}

/// Source of tasklets without a foreground: it runs every background job to the end of its current
/// iteration.
pub(super) struct BackgroundJobs<'h, 'a, S, O> {
    /// The background jobs, in the order in which they were added.
    pub(super) jobs: &'h mut [BackgroundJob<'a, S, O>],
    /// Settings and measurements of the run.
    pub(super) run: Run<'h>,
}

impl<S: BatchSource, O: Observer> Host<CudaDevice> for BackgroundJobs<'_, '_, S, O> {
    type Error = Error;

    fn offer(&mut self) -> Option<(Tasklet, Work)> {
        self.jobs.iter_mut().filter(|background| background.error.is_none()).find_map(|background| {
            background.job.offer(&mut background.iterations, self.run.policy).unwrap_or_else(|error| {
                background.error = Some(error.to_string());
                None
            })
        })
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<CudaDevice>) -> Result<(), Error> {
        let Finished { tasklet, took } = finished;
        self.run.count(false, Lane::Compute, took);
        let ran = self.run.ran(driver, took)?;
        let mut jobs = self.jobs.iter_mut();
        let Some(background) = jobs.find(|background| background.job.id() == tasklet.job) else {
            return Err(Error::UnknownTasklet { tasklet });
        };
        let finished = background.job.finish(
            &mut background.iterations,
            tasklet.number,
            (took, ran),
            driver.device_mut(),
            self.run.policy,
        );
        if let Err(error) = finished {
            background.error.get_or_insert(error.to_string());
            driver.fail(tasklet.job)?;
        }
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.jobs.iter().all(|background| {
            background.error.is_some() || background.iterations.context.iteration >= background.iterations.end
        })
    }

    fn background_failed(&mut self, job: JobId, error: &cuda::Error) -> Result<(), Error> {
        if let Some(background) = self.jobs.iter_mut().find(|background| background.job.id() == job) {
            let cause = background.job.take_failure().map(|error| error.to_string());
            background.error.get_or_insert(cause.unwrap_or_else(|| error.to_string()));
        }
        Ok(())
    }
}

/// Source of tasklets with a foreground, and background jobs beside it.
pub(super) struct Jobs<'h, 'f, 'a, F, N, S, O> {
    /// The launch units of the foreground's programs.
    pub(super) foreground: &'h mut Job,
    /// The iterations of the foreground, with program, state and samples.
    pub(super) iterations: Iterations<'f, Gpu, F, N>,
    /// The background jobs, with settings and measurements of the run.
    pub(super) background: BackgroundJobs<'h, 'a, S, O>,
    /// The error of loading samples for the foreground, until it is reported to the driver.
    pub(super) error: Option<Error>,
}

impl<F: BatchSource, N: Observer, S: BatchSource, O: Observer> Jobs<'_, '_, '_, F, N, S, O> {
    /// Returns a description of the oldest unfinished tasklet of each job, joined by "and".
    pub(super) fn in_flight(&self) -> String {
        let foreground = self.foreground.in_flight(&self.iterations).map(|step| format!("`{step}`"));
        let background = self.background.jobs.iter().filter_map(BackgroundJob::in_flight);
        let all: Vec<String> = foreground.into_iter().chain(background).collect();
        if all.is_empty() { "nothing of ours".into() } else { all.join(" and ") }
    }
}

impl<F: BatchSource, N: Observer, S: BatchSource, O: Observer> Host<CudaDevice>
    for Jobs<'_, '_, '_, F, N, S, O>
{
    type Error = Error;

    fn offer(&mut self) -> Option<(Tasklet, Work)> {
        if self.error.is_none() {
            match self.foreground.offer(&mut self.iterations, self.background.run.policy) {
                Ok(Some(offered)) => return Some(offered),
                Ok(None) => {}
                Err(error) => self.error = Some(error),
            }
        }
        self.background.offer()
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<CudaDevice>) -> Result<(), Error> {
        let Finished { tasklet, took } = finished;
        if !tasklet.job.is_foreground() {
            return self.background.finish(finished, driver);
        }
        let run = &mut self.background.run;
        run.count(true, self.foreground.lane(tasklet.number)?, took);
        let ran = run.ran(driver, took)?;
        self.foreground.finish(
            &mut self.iterations,
            tasklet.number,
            (took, ran),
            driver.device_mut(),
            run.policy,
        )
    }

    fn is_done(&self) -> bool {
        self.iterations.context.iteration >= self.iterations.end
    }

    fn caught_up(&mut self, _: &mut Driver<CudaDevice>) -> Result<(), Error> {
        if let Some(lane) = &self.foreground.launch_table().communication {
            lane.check()?;
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn background_failed(&mut self, job: JobId, error: &cuda::Error) -> Result<(), Error> {
        self.background.background_failed(job, error)
    }
}

//! The driver of a rank on a GPU.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_mux::cuda::{CudaDevice, DeviceOptions, HostClock};
use gpu_mux::{Device, Driver, JobId, Lane, Policy, RunOutcome, Usage};

use super::calls::{CommunicationLane, KernelQueue};
use super::clock::LaunchTimes;
use super::host::{BackgroundJob, BackgroundJobs, Jobs, Run};
use super::job::Job;
use super::launch_table::LaunchTable;
use super::{Gpu, GpuEngine};
use crate::Error;
use crate::runtime::{BackgroundStatus, BatchSource, Iterations, JobsMut, Observer, RankDriver};

/// Maximum time of waiting for the device before collectives are checked for missing ranks.
const COLLECTIVE_CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Driver of a rank on its GPU: it runs the foreground on streams of high priority, and background
/// jobs on streams of low priority.
///
/// Steps are launched as soon as the [`Policy`] allows, and wait for each other on the device
/// instead of the host. Collectives run on a separate stream. Once each program has been executed
/// twice, the steps between collectives are captured into CUDA graphs and merged, and those of
/// background jobs are divided into pieces. The loss of an iteration is read while the next one
/// runs.
pub struct GpuDriver<'a, S, O> {
    // Dropped first: it waits for work that uses the other fields.
    driver: Driver<CudaDevice>,
    foreground: Option<Job>,
    background: Vec<BackgroundJob<'a, S, O>>,
    engine: GpuEngine,
    policy: Policy,
    epoch: Instant,
}

impl<S, O> GpuDriver<'_, S, O> {
    /// Creates the launch tables of a program's iterations on the streams of a job.
    fn launch_tables<F, N>(
        &mut self,
        id: JobId,
        iterations: &Iterations<'_, Gpu, F, N>,
    ) -> Result<Vec<LaunchTable>, Error> {
        let (engine, device) = (&iterations.device.engine, self.driver.device_mut());
        let programs = &iterations.loaded.programs;
        let has_times = programs.iter().all(|iteration| iteration.step_times.is_some());
        let times = LaunchTimes(engine.clock().filter(|_| has_times).map(|clock| clock.emulated()));
        let queue = KernelQueue::on(device.stream(id, Lane::Compute)?, engine, times)?;
        // One lane for all programs, so that a missing rank is found in each of them.
        let communication = if id.is_foreground() {
            Some(CommunicationLane::on(device.stream(id, Lane::Communication)?, times))
        } else {
            None
        };
        let table = |iteration| {
            let (queue, communication) = (queue.clone(), communication.clone());
            LaunchTable::new(engine, iterations.loaded, iteration, iterations.state, (queue, communication))
        };
        programs.iter().map(table).collect()
    }
}

impl<'a, S: BatchSource, O: Observer> RankDriver<'a, Gpu, S, O> for GpuDriver<'a, S, O> {
    fn new(engine: &GpuEngine, policy: Policy) -> Result<Self, Error> {
        let device = CudaDevice::new(engine.context(), policy, DeviceOptions::default())?;
        let device = match engine.clock() {
            Some(clock) => device.with_host_clock(Arc::clone(clock) as Arc<dyn HostClock>),
            None => device,
        };
        let now = Instant::now();
        let epoch = now.checked_sub(device.now()).unwrap_or(now);
        let driver = Driver::new(policy, device);
        Ok(Self { driver, foreground: None, background: Vec::new(), engine: engine.clone(), policy, epoch })
    }

    fn add(&mut self, job: Iterations<'a, Gpu, S, O>, weight: NonZeroU32) -> Result<(), Error> {
        let id = JobId::background(u32::try_from(self.background.len()).unwrap_or(u32::MAX));
        let tables = self.launch_tables(id, &job)?;
        self.driver.set_weight(id, weight)?;
        self.background.push(BackgroundJob { job: Job::new(id, tables, &job), iterations: job, error: None });
        Ok(())
    }

    fn run<F: BatchSource, N: Observer>(
        &mut self,
        foreground: Iterations<'_, Gpu, F, N>,
    ) -> Result<Usage, Error> {
        let job = match self.foreground.take().filter(|job| job.belongs_to(&foreground)) {
            Some(job) => job,
            None => {
                Job::new(JobId::FOREGROUND, self.launch_tables(JobId::FOREGROUND, &foreground)?, &foreground)
            }
        };
        let job = self.foreground.insert(job);
        job.begin(&foreground);
        let clock = self.engine.clock();
        if let Some(clock) = clock {
            clock.enter();
        }
        let begin = self.driver.device().now();
        let mut jobs = Jobs {
            foreground: job,
            iterations: foreground,
            background: BackgroundJobs {
                jobs: &mut self.background,
                run: Run { policy: &self.policy, epoch: self.epoch, usage: Usage::default() },
            },
            error: None,
        };
        let ran = loop {
            let until = self.driver.device().now() + COLLECTIVE_CHECK_INTERVAL;
            match self.driver.run(&mut jobs, Some(until)) {
                Ok(RunOutcome::TimeLimit | RunOutcome::Stalled) => {}
                Ok(RunOutcome::Done) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = ran {
            if let Some(clock) = clock {
                clock.give_up();
            }
            return Err(failed(error, &jobs));
        }
        let usage =
            Usage { elapsed: self.driver.device().now().saturating_sub(begin), ..jobs.background.run.usage };
        if let Some(clock) = clock {
            clock.leave();
        }
        self.engine.context().check()?;
        Ok(usage)
    }

    fn explain(&self, rank: usize, error: Error) -> Error {
        let in_flight: Vec<String> = self.background.iter().filter_map(BackgroundJob::in_flight).collect();
        let in_flight = Some(in_flight.join(" and ")).filter(|in_flight| !in_flight.is_empty());
        error.on_gpu_of(rank, in_flight)
    }

    fn now(&self) -> Instant {
        self.epoch + self.driver.device().now()
    }

    fn background(&self) -> Vec<BackgroundStatus<'_, O>> {
        let jobs = self.background.iter().map(|background| BackgroundStatus {
            iterations: background.iterations.progress(),
            error: background.error.clone(),
            observer: background.iterations.observer(),
        });
        jobs.collect()
    }

    fn jobs_mut(&mut self) -> JobsMut<'_, 'a, Gpu, S, O> {
        let jobs = self.background.iter_mut();
        jobs.map(|job| job.error.is_none().then_some(&mut job.iterations)).collect()
    }

    fn background_between_iterations(&mut self) -> Result<JobsMut<'_, 'a, Gpu, S, O>, Error> {
        if self.background.is_empty() {
            return Ok(Vec::new());
        }
        for background in &mut self.background {
            background.iterations.end = background.job.end_of_offered();
        }
        let run = Run { policy: &self.policy, epoch: self.epoch, usage: Usage::default() };
        let mut jobs = BackgroundJobs { jobs: &mut self.background, run };
        let clock = self.engine.clock();
        if let Some(clock) = clock {
            clock.enter();
        }
        let ran = self.driver.run(&mut jobs, None);
        if let Some(clock) = clock {
            if ran.is_ok() { clock.leave() } else { clock.give_up() }
        }
        let _: RunOutcome = ran?;
        let jobs = self.background.iter_mut().map(|background| {
            let iterations = &mut background.iterations;
            let is_between = background.error.is_none() && iterations.context.iteration == iterations.end;
            iterations.end = u64::MAX;
            is_between.then_some(iterations)
        });
        Ok(jobs.collect())
    }
}

/// Returns the error of a run with its cause, after the device has finished all collectives, for
/// which failed ranks may be missing.
fn failed<F: BatchSource, N: Observer, S: BatchSource, O: Observer>(
    error: Error,
    jobs: &Jobs<'_, '_, '_, F, N, S, O>,
) -> Error {
    let table = jobs.foreground.launch_table();
    let error = jobs.foreground.take_failure().unwrap_or(error);
    let rank = jobs.iterations.loaded.program().rank;
    let error = error.on_gpu_of(rank, Some(jobs.in_flight()));
    if let Some(lane) = &table.communication {
        // The first error is the most informative.
        let _ = lane.finish();
    }
    error
}

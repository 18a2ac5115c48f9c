//! Simulation of a workload in virtual time.

use std::time::Duration;

use super::hosts::{BackgroundHost, ForegroundHost};
use super::{Workload, check_virtual_time};
use crate::seconds::total;
use crate::{
    Device, DeviceParameters, Driver, Error, Finished, Host, Occupancy, Policy, RunOutcome, Tasklet,
    VirtualDevice, VirtualWork,
};

/// Options for the simulation of a [`Workload`] on a [`VirtualDevice`].
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SimulationOptions {
    /// Policy by which the jobs share the device.
    pub policy: Policy,
    /// Parameters of the simulated device.
    pub parameters: DeviceParameters,
    /// Jobs that run.
    pub jobs: Jobs,
    /// Number of measured iterations of the foreground, or of the background if it runs alone. At
    /// least 1.
    pub iterations: usize,
    /// Number of iterations before the measured ones, in which the policy learns the durations of
    /// the workload.
    pub warm_up: usize,
}

impl SimulationOptions {
    /// Sets the policy by which the jobs share the device.
    #[must_use]
    pub fn with_policy(self, policy: Policy) -> Self {
        Self { policy, ..self }
    }

    /// Sets the parameters of the simulated device.
    #[must_use]
    pub fn with_parameters(self, parameters: DeviceParameters) -> Self {
        Self { parameters, ..self }
    }

    /// Sets the jobs that run.
    #[must_use]
    pub fn with_jobs(self, jobs: Jobs) -> Self {
        Self { jobs, ..self }
    }

    /// Sets the number of measured iterations, at least 1.
    #[must_use]
    pub fn with_iterations(self, iterations: usize) -> Self {
        Self { iterations, ..self }
    }

    /// Sets the number of iterations before the measured ones.
    #[must_use]
    pub fn with_warm_up(self, warm_up: usize) -> Self {
        Self { warm_up, ..self }
    }
}

/// Selection of the jobs that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// Foreground and background together.
    Both,
    /// The foreground alone.
    Foreground,
    /// The background alone.
    Background,
}

/// Results of a simulated [`Workload`]. Times are modelled, not measured.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SimulationReport {
    /// Duration of each measured iteration of the foreground (of the background if it ran alone),
    /// from the end of the one before to its own. An end counts at the time at which the thread
    /// that launches work sees it.
    pub iterations: Vec<Duration>,
    /// Time of the measured iterations, by the state of the foreground.
    pub occupancy: Occupancy,
    /// Number of background samples trained on during the measured iterations, in proportion to the
    /// finished part of an iteration's duration.
    pub background_samples: f64,
    /// Number of background pieces finished during the measured iterations.
    pub background_pieces: u64,
    /// Number of those pieces that took longer than [`Policy::background_piece`]; 0 if pieces are
    /// not bounded.
    pub over_limit: u64,
}

impl SimulationReport {
    /// Returns the total duration of the measured iterations.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        total(self.iterations.iter().copied())
    }

    /// Returns the background's throughput in samples per second.
    #[must_use]
    pub fn background_samples_per_s(&self) -> f64 {
        self.background_samples / self.elapsed().as_secs_f64()
    }
}

impl Default for SimulationOptions {
    /// Both jobs with the default policy on an A100: 100 iterations after 10 for warm-up.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            parameters: DeviceParameters::a100(),
            jobs: Jobs::Both,
            iterations: 100,
            warm_up: 10,
        }
    }
}

impl Workload {
    /// Simulates the jobs in virtual time with a [`Driver`].
    ///
    /// The host of the foreground is one iteration ahead of the device, that of the background some
    /// pieces. An iteration begins when the one before has finished completely. The background is
    /// cut between kernels to the policy's bound, across steps, and into micro-batches if the
    /// policy has them.
    ///
    /// O(events x streams).
    ///
    /// # Errors
    /// [`Error::OutOfRange`] for an invalid device or too long a simulation
    /// ([`check_virtual_time`](crate::check_virtual_time)), [`Error::EmptyIteration`] for a job
    /// without compute, [`Error::Stalled`] if the policy launches nothing.
    pub fn simulate(&self, options: &SimulationOptions) -> Result<SimulationReport, Error> {
        self.check_virtual_time(options)?;
        let device = VirtualDevice::with_priorities(options.parameters, options.policy.stream_priority)?;
        let mut driver = Driver::new(options.policy, device);
        let mut simulation = Simulation::new(self, options, &driver)?;
        match driver.run(&mut simulation, None)? {
            RunOutcome::Done => Ok(simulation.report(&driver)),
            RunOutcome::TimeLimit | RunOutcome::Stalled => Err(Error::Stalled),
        }
    }

    fn check_virtual_time(&self, options: &SimulationOptions) -> Result<(), Error> {
        let iterations = options.iterations.saturating_add(options.warm_up) as u64;
        let foreground = total(self.foreground.in_order_times());
        match options.jobs {
            Jobs::Both => check_virtual_time(foreground, iterations, Some(&self.background), 1),
            Jobs::Foreground => check_virtual_time(foreground, iterations, None, 1),
            Jobs::Background => check_virtual_time(self.background.compute_time(), iterations, None, 1),
        }
    }
}

/// The hosts of both jobs, and the measurements.
struct Simulation<'a> {
    foreground: Option<ForegroundHost<'a>>,
    background: Option<BackgroundHost>,
    iterations: usize,
    warm_up: usize,
    iterations_ended: u64,
    /// End times of iterations, beginning with the last one of the warm-up.
    ends: Vec<Duration>,
    before: Snapshot,
}

/// State at the end of the warm-up.
#[derive(Debug, Clone, Copy, Default)]
struct Snapshot {
    occupancy: Occupancy,
    background_time: Duration,
    background_pieces: u64,
    over_limit: u64,
}

impl<'a> Simulation<'a> {
    fn new(
        workload: &'a Workload,
        options: &SimulationOptions,
        driver: &Driver<VirtualDevice>,
    ) -> Result<Self, Error> {
        let iterations = [("foreground", &workload.foreground), ("background", &workload.background)];
        if let Some((job, _)) = iterations.into_iter().find(|(_, job)| job.compute_time().is_zero()) {
            return Err(Error::EmptyIteration(job));
        }
        let foreground = ForegroundHost::new(&workload.foreground, &options.policy, &options.parameters);
        let background = BackgroundHost::new(&workload.background, &options.policy, &options.parameters);
        let mut simulation = Self {
            foreground: (options.jobs != Jobs::Background).then_some(foreground),
            background: (options.jobs != Jobs::Foreground).then_some(background),
            iterations: options.iterations.max(1),
            warm_up: options.warm_up,
            iterations_ended: 0,
            ends: Vec::new(),
            before: Snapshot::default(),
        };
        simulation.end_of_iterations(0, driver);
        Ok(simulation)
    }

    fn end_of_iterations(&mut self, ended: u64, driver: &Driver<VirtualDevice>) {
        let is_new = ended > self.iterations_ended || self.ends.is_empty();
        self.iterations_ended = ended;
        if is_new && ended >= self.warm_up as u64 {
            if self.ends.is_empty() {
                self.before = self.snapshot(driver);
            }
            self.ends.push(driver.device().now());
        }
    }

    fn snapshot(&self, driver: &Driver<VirtualDevice>) -> Snapshot {
        let background = self.background.as_ref();
        Snapshot {
            occupancy: *driver.device().occupancy(),
            background_time: background.map_or(Duration::ZERO, |background| background.finished_time),
            background_pieces: background.map_or(0, |background| background.finished),
            over_limit: driver.multiplexer().over_limit(),
        }
    }

    fn report(&self, driver: &Driver<VirtualDevice>) -> SimulationReport {
        let after = self.snapshot(driver);
        let background_time = after.background_time.saturating_sub(self.before.background_time);
        SimulationReport {
            iterations: self.ends.windows(2).map(|ends| ends[1].saturating_sub(ends[0])).collect(),
            occupancy: after.occupancy.since(&self.before.occupancy),
            background_samples: self.background.as_ref().map_or(0.0, |job| job.samples_in(background_time)),
            background_pieces: after.background_pieces - self.before.background_pieces,
            over_limit: after.over_limit - self.before.over_limit,
        }
    }
}

impl Host<VirtualDevice> for Simulation<'_> {
    type Error = Error;

    fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
        let foreground = self.foreground.as_mut().and_then(ForegroundHost::offer);
        foreground.or_else(|| self.background.as_mut().and_then(BackgroundHost::offer))
    }

    fn finish(&mut self, finished: Finished, driver: &mut Driver<VirtualDevice>) -> Result<(), Error> {
        let of_background = self.background.as_mut().filter(|_| !finished.tasklet.job.is_foreground());
        if let Some(background) = of_background {
            background.finish(finished.tasklet);
        }
        let ended = match (&mut self.foreground, &self.background) {
            (Some(foreground), _) => {
                if finished.tasklet.job.is_foreground() {
                    foreground.finish();
                }
                foreground.iterations_ended()
            }
            (None, Some(background)) => background.iterations_ended(),
            (None, None) => 0,
        };
        self.end_of_iterations(ended, driver);
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.ends.len() > self.iterations
    }
}

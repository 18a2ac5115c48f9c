//! The source of work of a driver, and the loop that connects the two. To *offer* a tasklet is to
//! declare that it may be launched.

use std::time::Duration;

use crate::{Device, Driver, DriverError, Finished, JobId, Tasklet};

/// The source of work for a [`Driver`]: offers tasklets as they become ready and reacts to finished
/// ones.
///
/// One host may supply several jobs. [`Driver::run`] calls it, for a GPU as for the virtual device.
///
/// ```
/// use std::time::Duration;
///
/// use gpu_mux::{
///     Device, DeviceParameters, Driver, Error, Finished, Host, JobId, Kernel, Policy, RunOutcome,
///     Tasklet, VirtualDevice, VirtualWork,
/// };
///
/// /// Launches a kernel ten times, each when the one before has finished.
/// struct Kernels {
///     offered: u64,
///     finished: u64,
/// }
///
/// impl Host<VirtualDevice> for Kernels {
///     type Error = Error;
///
///     fn offer(&mut self) -> Option<(Tasklet, VirtualWork)> {
///         if self.offered > self.finished {
///             return None;
///         }
///         let tasklet = Tasklet::new(JobId::FOREGROUND, self.offered);
///         self.offered += 1;
///         let kernel = Kernel::new(Duration::from_micros(100), 1.0, 0.5).ok()?;
///         Some((tasklet, VirtualWork::graph([kernel])))
///     }
///
///     fn finish(&mut self, _: Finished, _: &mut Driver<VirtualDevice>) -> Result<(), Error> {
///         self.finished += 1;
///         Ok(())
///     }
///
///     fn is_done(&self) -> bool {
///         self.finished == 10
///     }
/// }
///
/// let device = VirtualDevice::new(DeviceParameters::a100().without_overheads())?;
/// let mut driver = Driver::new(Policy::default(), device);
/// assert_eq!(driver.run(&mut Kernels { offered: 0, finished: 0 }, None)?, RunOutcome::Done);
/// assert_eq!(driver.device().now(), Duration::from_millis(1));
/// # Ok::<(), Error>(())
/// ```
pub trait Host<D: Device> {
    /// Type of the host's errors.
    type Error: From<DriverError<D::Error>>;

    /// Returns the next tasklet that may be launched, with its work, or `None` until another one
    /// has finished.
    fn offer(&mut self) -> Option<(Tasklet, D::Work)>;

    /// Handles a finished tasklet. `driver` gives access to the device.
    ///
    /// # Errors
    /// An error ends the run.
    fn finish(&mut self, finished: Finished, driver: &mut Driver<D>) -> Result<(), Self::Error>;

    /// Whether all work is done, which ends the run. Called when the host has nothing to offer and
    /// after each finished tasklet.
    fn is_done(&self) -> bool;

    /// Called when all finished tasklets have been handled: before time passes, and before the run
    /// ends by its time limit.
    ///
    /// # Errors
    /// An error ends the run.
    fn caught_up(&mut self, driver: &mut Driver<D>) -> Result<(), Self::Error> {
        let _ = driver;
        Ok(())
    }

    /// Called when a background job has ended because one of its tasklets could not be launched. By
    /// default the other jobs continue; [`Driver::background_failures`] keeps the error.
    ///
    /// # Errors
    /// An error ends the run.
    fn background_failed(&mut self, job: JobId, error: &D::Error) -> Result<(), Self::Error> {
        let _ = (job, error);
        Ok(())
    }
}

/// Reason for which a [run](Driver::run) has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the host may have more to do"]
pub enum RunOutcome {
    /// The host [is done](Host::is_done).
    Done,
    /// The time limit of the run was reached.
    TimeLimit,
    /// The host is not done, no tasklet is in flight, and none can be launched: the host offers
    /// none, or the policy launches none of those offered.
    Stalled,
}

impl<D: Device> Driver<D> {
    /// Launches the host's tasklets as the policy decides and reports finished ones to the host,
    /// until the host is done, the device's time reaches `until` (`None` for no limit), or nothing
    /// more can happen.
    ///
    /// # Errors
    /// The host's errors, a device error, or an event that the multiplexer refuses.
    pub fn run<H: Host<D>>(&mut self, host: &mut H, until: Option<Duration>) -> Result<RunOutcome, H::Error> {
        let mut reported = self.background_failures().len();
        loop {
            self.offer_all(host)?;
            loop {
                let finished = self.poll()?;
                for (job, error) in &self.background_failures()[reported..] {
                    host.background_failed(*job, error)?;
                }
                reported = self.background_failures().len();
                let Some(finished) = finished else { break };
                host.finish(finished, self)?;
                if host.is_done() {
                    return Ok(RunOutcome::Done);
                }
                self.offer_all(host)?;
            }
            host.caught_up(self)?;
            if host.is_done() {
                return Ok(RunOutcome::Done);
            }
            if until.is_some_and(|until| self.device().now() >= until) {
                self.caught_up = true;
                return Ok(RunOutcome::TimeLimit);
            }
            if until.is_none() && self.is_idle() {
                return Ok(RunOutcome::Stalled);
            }
            self.wait(until)?;
        }
    }

    /// Runs as [`run`](Self::run) until the device's time reaches `until`, for a host that has had
    /// no new tasklets to offer since the last run. Faster, because nothing is checked again at the
    /// time at which that run reached its limit.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn continue_run<H: Host<D>>(
        &mut self,
        host: &mut H,
        until: Duration,
    ) -> Result<RunOutcome, H::Error> {
        if self.caught_up && self.device().now() < until {
            self.wait(Some(until))?;
        }
        self.run(host, Some(until))
    }

    fn offer_all<H: Host<D>>(&mut self, host: &mut H) -> Result<(), H::Error> {
        while let Some((tasklet, work)) = host.offer() {
            self.offer(tasklet, work)?;
        }
        Ok(())
    }
}

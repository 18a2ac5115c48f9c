//! A simulated rank: a virtual device with the driver and the jobs that share it. It represents a
//! class of equal ranks. Its partners at a collective are the other ranks of the collective.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Device, Driver, Exchange, ForegroundState, Grant, RunOutcome, TaskletId, VirtualDevice};

use super::SimulateOptions;
use super::jobs::{RankJobs, RankProgress};
use super::steps::RankClass;
use crate::Error;
use crate::program::{CollectiveId, RankProgram};

/// A rank that is simulated for all ranks of its class: its device, and the two jobs on it.
pub(super) struct Rank<'a> {
    /// Index of its class.
    index: usize,
    class: &'a RankClass<'a>,
    driver: Driver<VirtualDevice>,
    /// The foreground and the background job on the device.
    pub(super) jobs: RankJobs<'a>,
}

impl<'a> Rank<'a> {
    /// Creates the rank that is simulated for a class. `index` is the index of the class.
    ///
    /// # Errors
    /// [`Error::Mux`] for invalid device parameters.
    pub(super) fn new(
        index: usize,
        class: &'a RankClass<'a>,
        options: &'a SimulateOptions,
    ) -> Result<Self, Error> {
        let policy = options.policy;
        let device = VirtualDevice::with_priorities(options.device, policy.stream_priority)?;
        Ok(Self { index, class, driver: Driver::new(policy, device), jobs: RankJobs::new(class, options) })
    }

    /// Returns the virtual time of the next event on this device, unless another rank causes an
    /// earlier one; `None` if it waits for other ranks or has no work.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.driver.device().next_event()
    }

    /// Returns the class of the ranks that it represents.
    pub(super) fn class(&self) -> &'a RankClass<'a> {
        self.class
    }

    /// Returns the number of ranks of the class.
    pub(super) fn ranks(&self) -> usize {
        self.class.ranks
    }

    /// Returns the numbers of the ranks that it represents: all ranks of its class.
    pub(super) fn represented_ranks(&self) -> impl Iterator<Item = usize> {
        self.class.represented_ranks.iter().copied()
    }

    /// Returns whether it runs this program of the simulated program.
    pub(super) fn represents(&self, program: &RankProgram) -> bool {
        self.class.programs.iter().any(|own| std::ptr::eq(*own, program))
    }

    /// Records the present as the end of the warm-up if the rank has no steps. Other ranks record
    /// their own end of the warm-up.
    pub(super) fn end_warm_up(&mut self) {
        self.jobs.end_warm_up(&self.driver);
    }

    /// Processes the events of this device up to the virtual time `until`. The rank's arrivals at
    /// collectives, and the ends of its own transfers, are appended to `exchanges` with the index
    /// of its class.
    ///
    /// # Errors
    /// [`Error::Mux`] if the driver fails.
    pub(super) fn advance(
        &mut self,
        until: Duration,
        exchanges: &mut VecDeque<(usize, CollectiveId, Exchange)>,
    ) -> Result<(), Error> {
        let _: RunOutcome = self.driver.continue_run(&mut self.jobs, until)?;
        exchanges
            .extend(self.jobs.exchanges().map(|(collective, exchange)| (self.index, collective, exchange)));
        Ok(())
    }

    /// Begins the transfer of a collective at which all ranks have arrived. `tasklet` is this
    /// rank's part of it. The last of the rank's partners arrived at `others_arrived`. The transfer
    /// waits until `links_free`, if that is later.
    ///
    /// # Errors
    /// [`Error::Mux`] if the tasklet is not on the device.
    pub(super) fn begin_collective(
        &mut self,
        tasklet: TaskletId,
        others_arrived: Duration,
        links_free: Duration,
    ) -> Result<(), Error> {
        self.driver.transfers(tasklet)?;
        let device = self.driver.device_mut();
        let begins = device.now().max(links_free);
        self.jobs.begin_collective(tasklet, begins, others_arrived);
        Ok(device.partners_arrive(tasklet, begins)?)
    }

    /// Returns whether the foreground is idle on the device, and whether background is on it.
    pub(super) fn activity(&self) -> (bool, bool) {
        let device = self.driver.device();
        let is_idle = matches!(device.foreground_state(), ForegroundState::Waiting | ForegroundState::Idle);
        (is_idle, device.runs_background())
    }

    /// Decides at `now` whether a collective of a distributed background job may start; see
    /// [`Driver::grant`].
    pub(super) fn grant(&mut self, now: Duration, takes: Duration) -> Grant {
        self.driver.grant(now, takes)
    }

    /// Launches a piece that takes `takes`, of the collective of a distributed background job at
    /// which the rank has arrived, at the device's time.
    ///
    /// # Errors
    /// [`Error::Mux`] if the device refuses it.
    pub(super) fn launch_collective(&mut self, job: usize, takes: Duration) -> Result<(), Error> {
        if let Some((tasklet, work)) = self.jobs.member_mut(job).and_then(|member| member.launch(takes)) {
            self.driver.launch_collective(tasklet, work)?;
        }
        Ok(())
    }

    /// Ends a collective whose transfers have ended on all ranks. `tasklet` is this rank's part of
    /// it.
    ///
    /// # Errors
    /// [`Error::Mux`] if the tasklet is not on the device.
    pub(super) fn end_collective(&mut self, tasklet: TaskletId) -> Result<(), Error> {
        let device = self.driver.device_mut();
        Ok(device.partners_finish(tasklet, device.now())?)
    }

    /// Returns the device time and background samples from the rank's own end of the warm-up to its
    /// own end of the last iteration.
    pub(super) fn progress(&self) -> RankProgress {
        self.jobs.progress(&self.driver)
    }
}

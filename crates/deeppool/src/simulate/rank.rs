//! A rank in virtual time.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Device, Driver, Exchange, RunOutcome, TaskletId, VirtualDevice};

use super::SimulateOptions;
use super::jobs::{Figures, RankJobs};
use super::steps::RankClass;
use crate::Error;
use crate::program::CollectiveId;

/// A rank, simulated for all that do the same: its device, and the two jobs on it.
pub(super) struct Rank<'a> {
    /// Its class's place among the classes.
    index: usize,
    class: &'a RankClass<'a>,
    driver: Driver<VirtualDevice>,
    pub(super) jobs: RankJobs<'a>,
}

impl<'a> Rank<'a> {
    pub(super) fn new(
        index: usize,
        class: &'a RankClass<'a>,
        options: &'a SimulateOptions,
    ) -> Result<Self, Error> {
        let policy = options.policy;
        let device = VirtualDevice::with_priorities(options.device, policy.stream_priority)?;
        Ok(Self { index, class, driver: Driver::new(policy, device), jobs: RankJobs::new(class, options) })
    }

    /// The time of the next event on this device, unless another rank causes one before.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.driver.device().next_event()
    }

    /// How many ranks it stands for.
    pub(super) fn ranks(&self) -> usize {
        self.class.ranks
    }

    /// Which ranks it stands for.
    pub(super) fn stands_for(&self) -> impl Iterator<Item = usize> {
        self.class.programs.iter().flat_map(|program| &program.stands_for).copied()
    }

    /// All ranks have ended the warm-up now. For a rank without steps its figures begin here.
    pub(super) fn end_warm_up(&mut self) {
        self.jobs.end_warm_up(&self.driver);
    }

    /// Processes the events of this device up to a time. Communication that waits for its partners from then on is added to
    /// `exchanges`, with its collective.
    pub(super) fn advance(
        &mut self,
        until: Duration,
        exchanges: &mut VecDeque<(usize, CollectiveId, Exchange)>,
    ) -> Result<(), Error> {
        let _: RunOutcome = self.driver.run(&mut self.jobs, Some(until))?;
        exchanges
            .extend(self.jobs.exchanges().map(|(collective, exchange)| (self.index, collective, exchange)));
        Ok(())
    }

    /// The last rank has arrived at a collective, which begins now; the last of the others arrived at `others_arrived`.
    pub(super) fn begin_collective(
        &mut self,
        tasklet: TaskletId,
        others_arrived: Duration,
    ) -> Result<(), Error> {
        let device = self.driver.device_mut();
        self.jobs.begin_collective(tasklet, device.now(), others_arrived);
        Ok(device.partners_arrive(tasklet, device.now())?)
    }

    /// The last rank has done its part of a collective, which ends now.
    pub(super) fn end_collective(&mut self, tasklet: TaskletId) -> Result<(), Error> {
        let device = self.driver.device_mut();
        Ok(device.partners_finish(tasklet, device.now())?)
    }

    /// What the rank has done in its iterations after the warm-up, from the end of one to the end of another.
    pub(super) fn figures(&self) -> Figures {
        self.jobs.figures(&self.driver)
    }
}

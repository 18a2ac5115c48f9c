//! A simulated rank.

use std::collections::VecDeque;
use std::time::Duration;

use gpu_mux::{Device, Driver, Exchange, RunOutcome, TaskletId, VirtualDevice};

use super::SimulateOptions;
use super::jobs::{RankJobs, RankProgress};
use super::steps::RankClass;
use crate::Error;
use crate::program::CollectiveId;

/// A rank that is simulated for all ranks of its class: its device, and the two jobs on it.
pub(super) struct Rank<'a> {
    /// Index of its class.
    index: usize,
    class: &'a RankClass<'a>,
    driver: Driver<VirtualDevice>,
    /// The foreground and the background job.
    pub(super) jobs: RankJobs<'a>,
}

impl<'a> Rank<'a> {
    /// Creates the rank that is simulated for the class with this index.
    pub(super) fn new(
        index: usize,
        class: &'a RankClass<'a>,
        options: &'a SimulateOptions,
    ) -> Result<Self, Error> {
        let policy = options.policy;
        let device = VirtualDevice::with_priorities(options.device, policy.stream_priority)?;
        Ok(Self { index, class, driver: Driver::new(policy, device), jobs: RankJobs::new(class, options) })
    }

    /// Returns the time of the next event on this device, unless another rank causes an earlier
    /// one.
    pub(super) fn next_event(&self) -> Option<Duration> {
        self.driver.device().next_event()
    }

    /// Returns the number of ranks of the class.
    pub(super) fn ranks(&self) -> usize {
        self.class.ranks
    }

    /// Returns the ranks for which it is simulated: all of its class.
    pub(super) fn stands_for(&self) -> impl Iterator<Item = usize> {
        self.class.programs.iter().flat_map(|program| &program.stands_for).copied()
    }

    /// Records the end of the warm-up of all ranks.
    pub(super) fn end_warm_up(&mut self) {
        self.jobs.end_warm_up(&self.driver);
    }

    /// Processes the events of this device up to a time. The arrivals and ends of collectives are
    /// appended to `exchanges`.
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

    /// Begins a collective at which the last rank has arrived. The last of the other ranks arrived
    /// at `others_arrived`.
    pub(super) fn begin_collective(
        &mut self,
        tasklet: TaskletId,
        others_arrived: Duration,
    ) -> Result<(), Error> {
        let device = self.driver.device_mut();
        self.jobs.begin_collective(tasklet, device.now(), others_arrived);
        Ok(device.partners_arrive(tasklet, device.now())?)
    }

    /// Ends a collective that the last rank has completed.
    pub(super) fn end_collective(&mut self, tasklet: TaskletId) -> Result<(), Error> {
        let device = self.driver.device_mut();
        Ok(device.partners_finish(tasklet, device.now())?)
    }

    /// Returns the progress between the rank's end of the warm-up and its end of the last
    /// iteration.
    pub(super) fn progress(&self) -> RankProgress {
        self.jobs.progress(&self.driver)
    }
}

use std::collections::VecDeque;
use std::time::Duration;

use crate::{Error, Lane, Tasklet, TaskletId};

/// One job's tasklets: those that wait, in launch order, and those in flight.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    newest: Option<u64>,
    waiting: VecDeque<Tasklet>,
    /// Launched in rising order, so this stays sorted by number whatever finishes first.
    in_flight: VecDeque<Tasklet>,
    compute_in_flight: Load,
}

/// What is in flight on one lane, kept as sums so that a decision does not have to add them up.
#[derive(Debug, Clone, Default)]
struct Load {
    tasklets: usize,
    without_estimate: usize,
    estimated: Duration,
}

impl Queue {
    /// Appends a tasklet that is ready.
    pub(crate) fn push(&mut self, tasklet: Tasklet) -> Result<(), Error> {
        if let Some(last) = self.newest.filter(|&last| tasklet.id.number <= last) {
            return Err(Error::OutOfOrder { tasklet: tasklet.id, last });
        }
        self.newest = Some(tasklet.id.number);
        self.waiting.push_back(tasklet);
        Ok(())
    }

    /// The tasklet that is next to be launched.
    pub(crate) fn next(&self) -> Option<&Tasklet> {
        self.waiting.front()
    }

    /// Moves the next tasklet from waiting to in flight.
    pub(crate) fn launch(&mut self) -> Option<TaskletId> {
        let tasklet = self.waiting.pop_front()?;
        if tasklet.lane == Lane::Compute {
            self.compute_in_flight.add(tasklet.estimate);
        }
        self.in_flight.push_back(tasklet);
        Some(tasklet.id)
    }

    /// Removes a tasklet that is in flight: O(log n) to find it, O(1) to remove the oldest.
    pub(crate) fn finish(&mut self, id: TaskletId) -> Result<Tasklet, Error> {
        let found = self.in_flight.binary_search_by_key(&id.number, |tasklet| tasklet.id.number);
        let tasklet = found.ok().and_then(|at| self.in_flight.remove(at)).ok_or(Error::NotInFlight(id))?;
        if tasklet.lane == Lane::Compute {
            self.compute_in_flight.remove(tasklet.estimate);
        }
        Ok(tasklet)
    }

    /// Tasklets in flight on both lanes.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Compute tasklets in flight.
    pub(crate) fn compute_in_flight(&self) -> usize {
        self.compute_in_flight.tasklets
    }

    /// How long the compute tasklets in flight are estimated to take together, if all of them have an estimate.
    pub(crate) fn compute_estimate(&self) -> Option<Duration> {
        (self.compute_in_flight.without_estimate == 0).then_some(self.compute_in_flight.estimated)
    }
}

impl Load {
    fn add(&mut self, estimate: Option<Duration>) {
        self.tasklets += 1;
        match estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_add(estimate),
            None => self.without_estimate += 1,
        }
    }

    fn remove(&mut self, estimate: Option<Duration>) {
        self.tasklets -= 1;
        match estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_sub(estimate),
            None => self.without_estimate -= 1,
        }
    }
}

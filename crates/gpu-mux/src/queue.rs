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
    compute: Load,
}

/// What is in flight on the compute lane, kept as sums so that a decision does not have to add them up.
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
    pub(crate) fn launch(&mut self) -> Option<Tasklet> {
        let tasklet = self.waiting.pop_front()?;
        if tasklet.lane == Lane::Compute {
            self.compute.add(tasklet.estimate);
        }
        self.in_flight.push_back(tasklet);
        Some(tasklet)
    }

    /// Removes a tasklet that is in flight: O(log n) to find it, O(1) to remove the oldest.
    pub(crate) fn finish(&mut self, id: TaskletId) -> Result<Tasklet, Error> {
        let found = position(&self.in_flight, id.number);
        let tasklet = found.and_then(|at| self.in_flight.remove(at)).ok_or(Error::NotInFlight(id))?;
        if tasklet.lane == Lane::Compute {
            self.compute.remove(tasklet.estimate);
        }
        Ok(tasklet)
    }

    /// Nothing waits and nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    /// Tasklets in flight on both lanes.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The tasklets in flight, the oldest first.
    pub(crate) fn all_in_flight(&self) -> impl Iterator<Item = &Tasklet> {
        self.in_flight.iter()
    }

    /// Compute tasklets in flight.
    pub(crate) fn compute_in_flight(&self) -> usize {
        self.compute.tasklets
    }

    /// How long the compute tasklets in flight are estimated to take together, if all of them have an estimate.
    pub(crate) fn compute_estimate(&self) -> Option<Duration> {
        (self.compute.without_estimate == 0).then_some(self.compute.estimated)
    }

    /// Whether the device has compute work of this job that waits for nothing.
    ///
    /// O(c + log n) with c communication tasklets launched before the first compute tasklet in flight.
    pub(crate) fn computes(&self) -> bool {
        self.compute.tasklets > 0
            && self
                .in_flight
                .iter()
                .find(|tasklet| tasklet.lane == Lane::Compute)
                .is_some_and(|first| !first.after.is_some_and(|after| self.is_unfinished(after)))
    }

    fn is_unfinished(&self, id: TaskletId) -> bool {
        [&self.in_flight, &self.waiting].iter().any(|tasklets| position(tasklets, id.number).is_some())
    }
}

fn position(tasklets: &VecDeque<Tasklet>, number: u64) -> Option<usize> {
    tasklets.binary_search_by_key(&number, |tasklet| tasklet.id.number).ok()
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

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use crate::{Error, Lane, Tasklet, TaskletId};

/// One job's tasklets: those that wait, in launch order, and those in flight, by lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    newest: Option<u64>,
    waiting: VecDeque<Tasklet>,
    compute: InFlight,
    communication: InFlight,
}

/// What is in flight on one lane. Sums are kept, so that a decision does not have to add them up.
#[derive(Debug, Clone, Default)]
struct InFlight {
    /// Launched in rising order, so this stays sorted by number whatever finishes first.
    tasklets: VecDeque<Tasklet>,
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
        self.lane(tasklet.lane).push(tasklet);
        Some(tasklet)
    }

    /// Removes a tasklet that is in flight: O(log n) to find it, O(1) to remove the oldest of a lane.
    pub(crate) fn finish(&mut self, id: TaskletId) -> Result<Tasklet, Error> {
        let compute = self.compute.remove(id.number);
        compute.or_else(|| self.communication.remove(id.number)).ok_or(Error::NotInFlight(id))
    }

    /// Nothing waits and nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight() == 0
    }

    /// Tasklets in flight on both lanes.
    pub(crate) fn in_flight(&self) -> usize {
        self.compute_in_flight() + self.communication.tasklets.len()
    }

    /// The tasklets in flight.
    pub(crate) fn all_in_flight(&self) -> impl Iterator<Item = &Tasklet> {
        self.compute.tasklets.iter().chain(&self.communication.tasklets)
    }

    /// Compute tasklets in flight.
    pub(crate) fn compute_in_flight(&self) -> usize {
        self.compute.tasklets.len()
    }

    /// How long the compute tasklets in flight are estimated to take together, if all of them have an estimate.
    pub(crate) fn compute_estimate(&self) -> Option<Duration> {
        (self.compute.without_estimate == 0).then_some(self.compute.estimated)
    }

    /// Whether the device has compute work of this job that waits for nothing. O(log n).
    pub(crate) fn computes(&self) -> bool {
        self.compute.tasklets.front().is_some_and(|first| {
            let after =
                first.after.filter(|after| after.job == first.id.job && after.number < first.id.number);
            !after.is_some_and(|after| self.is_unfinished(after))
        })
    }

    fn is_unfinished(&self, id: TaskletId) -> bool {
        let lanes = [&self.communication.tasklets, &self.compute.tasklets, &self.waiting];
        lanes.iter().any(|tasklets| position(tasklets, id.number).is_some())
    }

    fn lane(&mut self, lane: Lane) -> &mut InFlight {
        match lane {
            Lane::Compute => &mut self.compute,
            Lane::Communication => &mut self.communication,
        }
    }
}

impl InFlight {
    fn push(&mut self, tasklet: Tasklet) {
        match tasklet.estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_add(estimate),
            None => self.without_estimate += 1,
        }
        self.tasklets.push_back(tasklet);
    }

    fn remove(&mut self, number: u64) -> Option<Tasklet> {
        let tasklet = position(&self.tasklets, number).and_then(|at| self.tasklets.remove(at))?;
        match tasklet.estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_sub(estimate),
            None => self.without_estimate -= 1,
        }
        Some(tasklet)
    }
}

/// Of tasklets in the order of their numbers.
fn position(tasklets: &VecDeque<Tasklet>, number: u64) -> Option<usize> {
    // Most often it is the oldest, or one that has ended before that.
    match number.cmp(&tasklets.front()?.id.number) {
        Ordering::Less => None,
        Ordering::Equal => Some(0),
        Ordering::Greater => tasklets.binary_search_by_key(&number, |tasklet| tasklet.id.number).ok(),
    }
}

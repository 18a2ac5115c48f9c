//! The tasklets of one job that have not finished. A tasklet *waits* until it is launched, and is
//! *in flight* from then until it is reported as finished.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use crate::{Error, Lane, Tasklet, TaskletId};

/// Tasklets of one job: those waiting, in launch order, and those in flight, by lane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Queue {
    newest: Option<u64>,
    waiting: VecDeque<Tasklet>,
    compute: InFlight,
    communication: InFlight,
}

/// The tasklets in flight on one lane, with running sums, so that a decision does not have to add
/// them up.
#[derive(Debug, Clone, Default)]
struct InFlight {
    /// Sorted by number: they are launched in increasing order, and removal keeps the order.
    tasklets: VecDeque<Tasklet>,
    without_estimate: usize,
    estimated: Duration,
}

impl Queue {
    /// Appends a tasklet that is ready. Fails with [`Error::OutOfOrder`] if its number is not
    /// larger than that of the last one.
    pub(crate) fn push(&mut self, tasklet: Tasklet) -> Result<(), Error> {
        if let Some(last) = self.newest.filter(|&last| tasklet.id.number <= last) {
            return Err(Error::OutOfOrder { tasklet: tasklet.id, last });
        }
        self.newest = Some(tasklet.id.number);
        self.waiting.push_back(tasklet);
        Ok(())
    }

    /// Returns the tasklet that is launched next, or `None` if none waits.
    pub(crate) fn next(&self) -> Option<&Tasklet> {
        self.waiting.front()
    }

    /// Moves the next tasklet from waiting to in flight and returns it, or `None` if none waits.
    pub(crate) fn launch(&mut self) -> Option<Tasklet> {
        let tasklet = self.waiting.pop_front()?;
        self.lane(tasklet.lane).push(tasklet);
        Some(tasklet)
    }

    /// Removes a tasklet in flight and returns it. Fails with [`Error::NotInFlight`] if it is not
    /// in flight. O(log n) to find it, O(1) to remove the oldest of a lane.
    pub(crate) fn finish(&mut self, id: TaskletId) -> Result<Tasklet, Error> {
        let compute = self.compute.remove(id.number);
        compute.or_else(|| self.communication.remove(id.number)).ok_or(Error::NotInFlight(id))
    }

    /// Returns whether nothing waits and nothing is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.in_flight() == 0
    }

    /// Returns the number of tasklets in flight on both lanes.
    pub(crate) fn in_flight(&self) -> usize {
        self.compute_in_flight() + self.communication.tasklets.len()
    }

    /// Iterates over the tasklets in flight. First those on the compute lane.
    pub(crate) fn all_in_flight(&self) -> impl Iterator<Item = &Tasklet> {
        self.compute.tasklets.iter().chain(&self.communication.tasklets)
    }

    /// Returns the number of compute tasklets in flight.
    pub(crate) fn compute_in_flight(&self) -> usize {
        self.compute.tasklets.len()
    }

    /// Returns the sum of the estimates of the compute tasklets in flight, or `None` if one has no
    /// estimate.
    pub(crate) fn compute_estimate(&self) -> Option<Duration> {
        (self.compute.without_estimate == 0).then_some(self.compute.estimated)
    }

    /// Whether the oldest compute tasklet in flight has no unfinished dependency, so that the
    /// device computes for this job. O(log n).
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

/// Returns the position of a number among tasklets sorted by number.
fn position(tasklets: &VecDeque<Tasklet>, number: u64) -> Option<usize> {
    // The most frequent cases: it is the oldest, or it has finished before the oldest.
    match number.cmp(&tasklets.front()?.id.number) {
        Ordering::Less => None,
        Ordering::Equal => Some(0),
        Ordering::Greater => tasklets.binary_search_by_key(&number, |tasklet| tasklet.id.number).ok(),
    }
}

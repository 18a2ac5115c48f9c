//! Foreground tasklets in launch order, as counted by [`Ahead::InOrder`](crate::Ahead::InOrder).
//! Consecutive tasklets within the limits of [`Merging`] form a *group*, which counts as one
//! tasklet. Times are measured from the driver's epoch.

use std::collections::VecDeque;
use std::time::Duration;

use crate::policy::Merging;
use crate::{Lane, Tasklet, TaskletId};

/// Foreground tasklets of both lanes in launch order. A tasklet is removed when it and all tasklets
/// launched before it have finished.
#[derive(Debug, Clone)]
pub(crate) struct LaunchOrder {
    merging: Merging,
    tasklets: VecDeque<Launched>,
    /// Number of tasklets in the newest group, and the sum of their estimates.
    newest: (usize, Duration),
    without_estimate: usize,
    estimated: Duration,
    /// Time since which the first tasklet has been the first.
    since: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Launched {
    tasklet: Tasklet,
    finished: bool,
    /// Number of the group that counts as one tasklet.
    group: u64,
}

impl LaunchOrder {
    /// Creates an empty order. `merging` has the limits of a group.
    pub(crate) fn new(merging: Merging) -> Self {
        Self {
            merging,
            tasklets: VecDeque::new(),
            newest: (0, Duration::ZERO),
            without_estimate: 0,
            estimated: Duration::ZERO,
            since: Duration::ZERO,
        }
    }

    /// Appends a tasklet launched at `now`, to the newest group if it [joins](Self::joins) it and
    /// otherwise as a new group.
    pub(crate) fn launch(&mut self, now: Duration, tasklet: Tasklet) {
        let group = self.tasklets.back().map_or(0, |last| last.group + u64::from(!self.joins(&tasklet)));
        let (tasklets, time) = if self.joins(&tasklet) { self.newest } else { (0, Duration::ZERO) };
        self.newest = (tasklets + 1, time.saturating_add(tasklet.estimate.unwrap_or_default()));
        if self.tasklets.is_empty() {
            self.since = now;
        }
        match tasklet.estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_add(estimate),
            None => self.without_estimate += 1,
        }
        self.tasklets.push_back(Launched { tasklet, finished: false, group });
    }

    /// Marks a tasklet as finished, without removing it; see [`pop_finished`](Self::pop_finished).
    /// An unknown tasklet is ignored. O(log n), or O(1) if numbers are consecutive.
    pub(crate) fn finish(&mut self, id: TaskletId) {
        let Some(first) = self.tasklets.front() else { return };
        let consecutive = id.number.saturating_sub(first.tasklet.id.number) as usize;
        let place = match self.tasklets.get(consecutive) {
            Some(of) if of.tasklet.id.number == id.number => Ok(consecutive),
            // Numbers increase in launch order.
            _ => self.tasklets.binary_search_by_key(&id.number, |of| of.tasklet.id.number),
        };
        if let Ok(place) = place {
            self.tasklets[place].finished = true;
        }
    }

    /// Removes the first tasklet if it has finished, and returns it with the time for which it was
    /// the first. `None` if it has not finished.
    pub(crate) fn pop_finished(&mut self, now: Duration) -> Option<(Tasklet, Duration)> {
        let tasklet = self.tasklets.front().filter(|first| first.finished)?.tasklet;
        self.tasklets.pop_front();
        match tasklet.estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_sub(estimate),
            None => self.without_estimate -= 1,
        }
        let took = now.saturating_sub(self.since);
        self.since = now;
        Some((tasklet, took))
    }

    /// Returns the first tasklet in launch order, which is the foreground's current one. `None` if
    /// there is none.
    pub(crate) fn first(&self) -> Option<&Tasklet> {
        self.tasklets.front().map(|first| &first.tasklet)
    }

    /// Whether the tasklet `next`, launched now, would be added to the newest group.
    pub(crate) fn joins(&self, next: &Tasklet) -> bool {
        let (tasklets, time) = self.newest;
        let newest = self.tasklets.back().map(|last| &last.tasklet);
        newest.into_iter().chain([next]).all(|of| of.lane == Lane::Compute && of.estimate.is_some())
            && newest.is_some()
            && tasklets < self.merging.max_tasklets
            && time <= self.merging.soft_limit
            && time.saturating_add(next.estimate.unwrap_or_default()) <= self.merging.hard_limit
    }

    /// Returns the number of groups with tasklets that have not been removed. A group counts once.
    pub(crate) fn len(&self) -> u64 {
        let ends = self.tasklets.front().zip(self.tasklets.back());
        ends.map_or(0, |(first, last)| last.group - first.group + 1)
    }

    /// Returns the sum of the estimates of the tasklets that have not been removed, or `None` if
    /// one has no estimate.
    pub(crate) fn estimate(&self) -> Option<Duration> {
        (self.without_estimate == 0).then_some(self.estimated)
    }
}

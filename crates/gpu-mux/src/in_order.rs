use std::collections::VecDeque;
use std::time::Duration;

use crate::policy::Merging;
use crate::{Lane, Tasklet, TaskletId};

/// The foreground's tasklets of both lanes in the order of their launches: one leaves when it and all that were launched
/// before it have finished.
#[derive(Debug, Clone)]
pub(crate) struct InOrder {
    merging: Merging,
    tasklets: VecDeque<Launched>,
    /// How many tasklets are in the newest group, and how long they take together.
    newest: (usize, Duration),
    without_estimate: usize,
    estimated: Duration,
    /// Since when the first of them has been the first.
    since: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Launched {
    tasklet: Tasklet,
    finished: bool,
    /// The number of the group that counts as one.
    group: u64,
}

impl InOrder {
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

    /// A tasklet has finished, and leaves as soon as it is the first. O(log n).
    pub(crate) fn finish(&mut self, id: TaskletId) {
        // A job numbers its tasklets in the order of their launches.
        if let Ok(place) = self.tasklets.binary_search_by_key(&id.number, |of| of.tasklet.id.number) {
            self.tasklets[place].finished = true;
        }
    }

    /// The first tasklet if it has finished, which leaves, and for how long it was the first.
    pub(crate) fn leave(&mut self, now: Duration) -> Option<(Tasklet, Duration)> {
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

    /// The tasklet that the foreground is at.
    pub(crate) fn first(&self) -> Option<&Tasklet> {
        self.tasklets.front().map(|first| &first.tasklet)
    }

    /// Whether a tasklet would count as one with the newest.
    pub(crate) fn joins(&self, next: &Tasklet) -> bool {
        let (tasklets, time) = self.newest;
        let newest = self.tasklets.back().map(|last| &last.tasklet);
        newest.into_iter().chain([next]).all(|of| of.lane == Lane::Compute && of.estimate.is_some())
            && newest.is_some()
            && tasklets < self.merging.tasklets
            && time <= self.merging.enough
            && time.saturating_add(next.estimate.unwrap_or_default()) <= self.merging.most
    }

    /// How many they are, those of a group as one.
    pub(crate) fn len(&self) -> u64 {
        let ends = self.tasklets.front().zip(self.tasklets.back());
        ends.map_or(0, |(first, last)| last.group - first.group + 1)
    }

    /// How long they are estimated to take together, if all of them have an estimate.
    pub(crate) fn estimate(&self) -> Option<Duration> {
        (self.without_estimate == 0).then_some(self.estimated)
    }
}

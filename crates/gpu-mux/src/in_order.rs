use std::collections::VecDeque;
use std::time::Duration;

use crate::{Tasklet, TaskletId};

/// The foreground's tasklets of both lanes in the order of their launches: one leaves when it and all that were launched
/// before it have finished.
#[derive(Debug, Clone, Default)]
pub(crate) struct InOrder {
    tasklets: VecDeque<Launched>,
    without_estimate: usize,
    estimated: Duration,
    /// Since when the first of them has been the first.
    since: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Launched {
    tasklet: Tasklet,
    finished: bool,
}

impl InOrder {
    pub(crate) fn launch(&mut self, now: Duration, tasklet: Tasklet) {
        if self.tasklets.is_empty() {
            self.since = now;
        }
        match tasklet.estimate {
            Some(estimate) => self.estimated = self.estimated.saturating_add(estimate),
            None => self.without_estimate += 1,
        }
        self.tasklets.push_back(Launched { tasklet, finished: false });
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

    pub(crate) fn len(&self) -> usize {
        self.tasklets.len()
    }

    /// How long they are estimated to take together, if all of them have an estimate.
    pub(crate) fn estimate(&self) -> Option<Duration> {
        (self.without_estimate == 0).then_some(self.estimated)
    }
}

use std::time::Duration;

use super::benchmark::Benchmarks;
use crate::{Event, JobId, Tasklet, TaskletId, Upcoming};

/// What the multiplexer has been told of the foreground.
#[derive(Debug, Default)]
pub(super) struct Foreground {
    next_number: u64,
    computing: Phase,
    communicating: Phase,
}

/// What the foreground does on one of its lanes.
#[derive(Debug, Default)]
struct Phase {
    /// The tasklet that the multiplexer takes to be in flight, its site, and when it began.
    open: Option<(TaskletId, Option<u32>, Duration)>,
    benchmarks: Benchmarks,
}

impl Foreground {
    /// A tasklet is ready.
    pub(super) fn computes(&mut self, upcoming: Upcoming, now: Duration) -> Event {
        let tasklet = self.tasklet();
        self.computing.begin(tasklet, upcoming, now)
    }

    /// It begins to run.
    pub(super) fn runs(&mut self, now: Duration) {
        if let Some((_, _, since)) = &mut self.computing.open {
            *since = now;
        }
    }

    /// It has run, if there was one.
    pub(super) fn ran(&mut self, now: Duration) -> Option<Event> {
        self.computing.end(now)
    }

    /// It waits for communication: all of the wait, until the next tasklet, is one. `None` when that is known.
    pub(super) fn communicates(&mut self, upcoming: Upcoming, now: Duration) -> Option<Event> {
        if self.communicating.open.is_some() {
            return None;
        }
        let tasklet = self.tasklet().receiving();
        Some(self.communicating.begin(tasklet, upcoming, now))
    }

    /// It waits for communication no longer, if it did.
    pub(super) fn communicated(&mut self, now: Duration) -> Option<Event> {
        self.communicating.end(now)
    }

    /// Whether a tasklet of the foreground is one to be run, not a wait.
    pub(super) fn is_compute(&self, id: TaskletId) -> bool {
        self.computing.open.is_some_and(|(open, ..)| open == id)
    }

    fn tasklet(&mut self) -> Tasklet {
        self.next_number += 1;
        Tasklet::new(JobId::FOREGROUND, self.next_number)
    }
}

impl Phase {
    fn begin(&mut self, tasklet: Tasklet, upcoming: Upcoming, now: Duration) -> Event {
        self.open = Some((tasklet.id, upcoming.site, now));
        Event::Ready(tasklet.at_site(upcoming.site).estimated(self.benchmarks.estimate(upcoming)))
    }

    fn end(&mut self, now: Duration) -> Option<Event> {
        let (tasklet, site, since) = self.open.take()?;
        let took = now.saturating_sub(since);
        self.benchmarks.learn(site, took);
        Some(Event::Finished { tasklet, took })
    }
}

//! A device that runs tasklets one after another in launch order.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use gpu_mux::{Device, Finished, Tasklet, TaskletId};

/// The work of a tasklet is its duration.
#[derive(Debug, Default)]
pub(super) struct SerialDevice {
    now: Duration,
    queue: VecDeque<Run>,
    /// Every launched tasklet.
    pub(super) runs: Vec<Run>,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Run {
    pub(super) id: TaskletId,
    pub(super) start: Duration,
    pub(super) end: Duration,
}

impl Run {
    pub(super) fn took(&self) -> Duration {
        self.end.saturating_sub(self.start)
    }
}

impl Device for SerialDevice {
    type Work = Duration;
    type Error = Infallible;

    fn now(&self) -> Duration {
        self.now
    }

    fn launch(&mut self, tasklet: &Tasklet, takes: Duration) -> Result<(), Infallible> {
        let start = self.queue.back().map_or(self.now, |last| last.end.max(self.now));
        let run = Run { id: tasklet.id, start, end: start + takes };
        self.queue.push_back(run);
        self.runs.push(run);
        Ok(())
    }

    fn finished(&mut self) -> Result<Option<Finished>, Infallible> {
        let now = self.now;
        let ended = self.queue.front().is_some_and(|run| run.end <= now);
        let run = if ended { self.queue.pop_front() } else { None };
        Ok(run.map(|run| Finished { tasklet: run.id, took: run.took() }))
    }

    fn wait(&mut self, until: Option<Duration>) -> Result<(), Infallible> {
        let next = self.queue.front().map(|run| run.end);
        let next = next.into_iter().chain(until).min();
        self.now = next.unwrap_or(self.now).max(self.now);
        Ok(())
    }
}

use std::collections::VecDeque;

use super::Work;
use crate::Finished;
use crate::TaskletId;
use crate::cuda::{Event, Result, Stream};

/// A stream with the tasklets that are in it.
#[derive(Debug)]
pub(super) struct DeviceQueue {
    pub(super) stream: Stream,
    in_flight: VecDeque<InFlight>,
    /// Pairs of marks to be used again, so that a launch makes none.
    spare: Vec<Marks>,
    /// Work that was put in, at least in part, and whose end could not be marked: it stays as long as the stream.
    unmarked: Vec<Work>,
}

#[derive(Debug)]
struct Marks {
    start: Event,
    end: Event,
}

#[derive(Debug)]
struct InFlight {
    tasklet: TaskletId,
    /// Its place in the order of all launches.
    launch: u64,
    marks: Marks,
    /// Stays as long as it runs.
    _work: Work,
}

impl DeviceQueue {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, in_flight: VecDeque::new(), spare: Vec::new(), unmarked: Vec::new() }
    }

    /// Puts a tasklet into the stream, between two marks.
    pub(super) fn launch(&mut self, tasklet: TaskletId, launch: u64, work: Work) -> Result<()> {
        let marks = match self.spare.pop() {
            Some(marks) => marks,
            None => Marks { start: Event::timed(&self.stream)?, end: Event::timed(&self.stream)? },
        };
        let launched = self.stream.record(&marks.start).and_then(|()| {
            work.launch(&self.stream)
                .and_then(|()| self.stream.record(&marks.end))
                .inspect_err(|_| self.unmarked.push(work.clone()))
        });
        match launched {
            Ok(()) => self.in_flight.push_back(InFlight { tasklet, launch, marks, _work: work }),
            Err(_) => self.spare.push(marks),
        }
        launched
    }

    /// The place in the order of launches of the oldest that is in flight.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.in_flight.front().map(|oldest| oldest.launch)
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether the oldest that is in flight has finished.
    pub(super) fn oldest_is_finished(&self) -> Result<bool> {
        self.in_flight.front().map_or(Ok(false), |oldest| oldest.marks.end.is_reached())
    }

    /// Takes out the oldest, which has finished. It stays in if its time cannot be asked for.
    pub(super) fn take_oldest(&mut self) -> Result<Option<Finished>> {
        let Some(oldest) = self.in_flight.front() else { return Ok(None) };
        let took = oldest.marks.end.since(&oldest.marks.start)?;
        Ok(self.in_flight.pop_front().map(|InFlight { tasklet, marks, .. }| {
            self.spare.push(marks);
            Finished { tasklet, took }
        }))
    }

    /// The mark at the end of a tasklet, if it is still in flight.
    pub(super) fn end_of(&self, tasklet: TaskletId) -> Option<&Event> {
        let found = self.in_flight.iter().rev().find(|in_flight| in_flight.tasklet == tasklet);
        found.map(|in_flight| &in_flight.marks.end)
    }
}

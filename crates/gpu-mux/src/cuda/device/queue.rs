use std::collections::VecDeque;

use super::Work;
use super::work::Remains;
use crate::Finished;
use crate::cuda::{Event, Result, Stream};
use crate::{JobId, TaskletId};

/// A stream with the tasklets that are in it.
#[derive(Debug)]
pub(super) struct DeviceQueue {
    pub(super) stream: Stream,
    in_flight: VecDeque<InFlight>,
    latest: Option<TaskletId>,
    /// Pairs of marks to be used again, so that a launch makes none.
    spare: Vec<Marks>,
    /// Work that was put in, at least in part, and whose end could not be marked: it stays until the stream is through.
    unmarked: Vec<Work>,
    /// What finished work has left.
    remains: Vec<Remains>,
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
    work: Work,
}

impl DeviceQueue {
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            in_flight: VecDeque::new(),
            latest: None,
            spare: Vec::new(),
            unmarked: Vec::new(),
            remains: Vec::new(),
        }
    }

    /// Puts a tasklet into the stream, between two marks.
    pub(super) fn launch(&mut self, tasklet: TaskletId, launch: u64, work: &Work) -> Result<()> {
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
            Ok(()) => {
                self.latest = Some(tasklet);
                self.in_flight.push_back(InFlight { tasklet, launch, marks, work: work.clone() });
            }
            Err(_) => self.spare.push(marks),
        }
        launched
    }

    /// The place in the order of launches of the oldest that is in flight.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.in_flight.front().map(|oldest| oldest.launch)
    }

    /// The number of the latest tasklet of a job that was launched into it, in flight or not.
    pub(super) fn latest(&self, job: JobId) -> Option<u64> {
        self.latest.filter(|latest| latest.job == job).map(|latest| latest.number)
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
        Ok(self.in_flight.pop_front().map(|InFlight { tasklet, marks, work, .. }| {
            self.spare.push(marks);
            self.remains.extend(work.remains());
            Finished { tasklet, took }
        }))
    }

    /// Keeps work that was not launched, or only in part, until waiting is allowed.
    pub(super) fn refuse(&mut self, work: Work) {
        self.remains.extend(work.remains());
    }

    /// Lets go of what finished work has left. It can wait for the whole device.
    pub(super) fn clear(&mut self) {
        self.remains.clear();
    }

    /// The same when the stream is through.
    pub(super) fn clear_all(&mut self) {
        self.unmarked.clear();
        self.clear();
    }

    /// The mark at the end of the tasklet that was taken out last, until the next launch.
    pub(super) fn last_end(&self) -> Option<&Event> {
        self.spare.last().map(|marks| &marks.end)
    }

    /// Gives that mark away, for another one.
    pub(super) fn exchange_last_end(&mut self, other: Event) -> Option<Event> {
        let marks = self.spare.last_mut()?;
        Some(std::mem::replace(&mut marks.end, other))
    }

    /// The mark at the end of a tasklet, if it is still in flight.
    pub(super) fn end_of(&self, tasklet: TaskletId) -> Option<&Event> {
        let found = self.in_flight.iter().rev().find(|in_flight| in_flight.tasklet == tasklet);
        found.map(|in_flight| &in_flight.marks.end)
    }
}

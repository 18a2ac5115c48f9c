//! One stream of a GPU and its tasklets. A tasklet is *in flight* from its launch until it is taken
//! out as finished. Drops that could block are *deferred* until blocking is allowed. Errors are
//! those of failed calls of the CUDA driver.

use std::collections::VecDeque;

use ::cuda::{Event, Result, Stream};

use super::Work;
use super::work::DeferredDrop;
use crate::Finished;
use crate::{JobId, TaskletId};

/// Stream with its tasklets in flight.
#[derive(Debug)]
pub(super) struct DeviceQueue {
    /// Stream into which the tasklets are launched.
    pub(super) stream: Stream,
    in_flight: VecDeque<InFlight>,
    latest: Option<TaskletId>,
    /// Pairs of events for reuse, so that a launch creates none.
    spare: Vec<EventPair>,
    /// Work that was launched, at least in part, without an event at its end. It is kept until the
    /// stream is idle.
    unmarked: Vec<Work>,
    /// Objects whose last reference was held by finished work.
    deferred_drops: Vec<DeferredDrop>,
}

#[derive(Debug)]
struct EventPair {
    start: Event,
    end: Event,
}

#[derive(Debug)]
struct InFlight {
    tasklet: TaskletId,
    /// Sequence number among all launches.
    launch: u64,
    events: EventPair,
    /// Kept alive while it runs.
    work: Work,
}

impl DeviceQueue {
    /// Creates a queue without tasklets.
    pub(super) fn new(stream: Stream) -> Self {
        Self {
            stream,
            in_flight: VecDeque::new(),
            latest: None,
            spare: Vec::new(),
            unmarked: Vec::new(),
            deferred_drops: Vec::new(),
        }
    }

    /// Enqueues a tasklet into the stream, between two events, without waiting for it. `launch` is
    /// its sequence number among all launches of the device.
    pub(super) fn launch(&mut self, tasklet: TaskletId, launch: u64, work: &Work) -> Result<()> {
        let events = match self.spare.pop() {
            Some(events) => events,
            None => EventPair { start: Event::timed(&self.stream)?, end: Event::timed(&self.stream)? },
        };
        let launched = self.stream.record(&events.start).and_then(|()| {
            work.launch(&self.stream)
                .and_then(|()| self.stream.record(&events.end))
                .inspect_err(|_| self.unmarked.push(work.clone()))
        });
        match launched {
            Ok(()) => {
                self.latest = Some(tasklet);
                self.in_flight.push_back(InFlight { tasklet, launch, events, work: work.clone() });
            }
            Err(_) => self.spare.push(events),
        }
        launched
    }

    /// Returns the sequence number, among all launches of the device, of the oldest tasklet in
    /// flight. `None` if none is in flight.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.in_flight.front().map(|oldest| oldest.launch)
    }

    /// Returns the number of the latest tasklet that was launched into this queue, in flight or
    /// not. `None` if there is none or it is not of this job.
    pub(super) fn latest(&self, job: JobId) -> Option<u64> {
        self.latest.filter(|latest| latest.job == job).map(|latest| latest.number)
    }

    /// Returns the number of tasklets in flight.
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns whether the oldest tasklet in flight has finished.
    pub(super) fn oldest_is_finished(&self) -> Result<bool> {
        self.in_flight.front().map_or(Ok(false), |oldest| oldest.events.end.is_complete())
    }

    /// Removes the oldest tasklet in flight, which must have finished, and returns it with its
    /// duration. `None` if none is in flight. It stays if its duration cannot be queried.
    pub(super) fn take_oldest(&mut self) -> Result<Option<Finished>> {
        let Some(oldest) = self.in_flight.front() else { return Ok(None) };
        let took = oldest.events.end.since(&oldest.events.start)?;
        Ok(self.in_flight.pop_front().map(|InFlight { tasklet, events, work, .. }| {
            self.spare.push(events);
            self.deferred_drops.extend(work.deferred_drops());
            Finished { tasklet, took }
        }))
    }

    /// Keeps work of a failed launch until blocking is allowed.
    pub(super) fn refuse(&mut self, work: Work) {
        self.deferred_drops.extend(work.deferred_drops());
    }

    /// Drops the deferred objects, which can block until the device is idle.
    pub(super) fn clear(&mut self) {
        self.deferred_drops.clear();
    }

    /// Drops the deferred objects and the work without an event at its end. The stream must be
    /// idle.
    pub(super) fn clear_all(&mut self) {
        self.unmarked.clear();
        self.clear();
    }

    /// Returns the end event of the tasklet that was removed last, or `None` if none was removed.
    /// Valid only until the next launch.
    pub(super) fn last_end(&self) -> Option<&Event> {
        self.spare.last().map(|events| &events.end)
    }

    /// Replaces the event of [`last_end`](Self::last_end) by `other`, and returns it. `None` if
    /// there is no such event.
    pub(super) fn exchange_last_end(&mut self, other: Event) -> Option<Event> {
        let events = self.spare.last_mut()?;
        Some(std::mem::replace(&mut events.end, other))
    }

    /// Returns the index of a tasklet among those in flight. `None` if it is not in flight in this
    /// queue.
    pub(super) fn index_of(&self, tasklet: TaskletId) -> Option<usize> {
        self.in_flight.iter().rposition(|in_flight| in_flight.tasklet == tasklet)
    }

    /// Returns the event at the end of the tasklet in flight with this index.
    pub(super) fn end_at(&self, index: usize) -> &Event {
        &self.in_flight[index].events.end
    }
}

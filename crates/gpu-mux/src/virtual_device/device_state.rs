//! Events of the virtual device, without its host. Times are nanoseconds since the device's epoch.
//! An event is *due* when its time has come. The *host* is the thread that launches work.
//! *Partners* are the other devices that take part in a communication; *external* ones are
//! simulated by the user of the device.

use std::collections::VecDeque;

use super::occupancy::{ForegroundState, Occupancy};
use super::stream::{DispatchPriority, Launch, NEVER, Phase, Stream};
use super::{Awaits, Exchange};
use crate::{Error, JobId, Lane, TaskletId};
use std::time::Duration;

/// Constants of the device, in multiprocessors and nanoseconds.
#[derive(Debug, Clone)]
pub(super) struct Hardware {
    /// Number of streaming multiprocessors.
    pub(super) multiprocessors: u32,
    /// Number of hardware queues, at least 1. Stream i, in the order of `DeviceState::streams`,
    /// uses queue i mod this number.
    pub(super) queues: usize,
    /// Time in nanoseconds from the end of a tasklet until the next one on its stream, or one that
    /// waits for it, can start.
    pub(super) kernel_gap: u64,
    /// Number of multiprocessors that a communication holds; 0 if it needs none.
    pub(super) communication_multiprocessors: u32,
    /// Fraction of the memory bandwidth, 0 to 1, that a communication uses while it transfers.
    pub(super) communication_memory: f64,
    /// Standard deviation of the duration of a compute tasklet in nanoseconds.
    pub(super) jitter: f64,
    /// Whether the foreground's streams have priority.
    pub(super) priorities: bool,
}

/// Tasklet that has ended on the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ended {
    /// Identifier of the tasklet.
    pub(super) tasklet: TaskletId,
    /// Time at which it was first on its stream with its dependencies complete.
    pub(super) opened: u64,
    /// Time at which it ended.
    pub(super) at: u64,
}

/// State of the device without its host: streams, running kernels, and their resources.
#[derive(Debug, Clone)]
pub(super) struct DeviceState {
    /// Constants of the device.
    pub(super) hardware: Hardware,
    /// Current virtual time.
    pub(super) now: u64,
    /// The streams in the order of their first launch, one for each job and lane.
    pub(super) streams: Vec<Stream>,
    launches: u64,
    /// Number of multiprocessors that no running kernel holds.
    pub(super) free: u32,
    /// Dispatch priority of the first stream that has fewer multiprocessors than it wants. `None`
    /// if there is no such stream.
    pub(super) first_short: Option<DispatchPriority>,
    /// Whether events may be due at the current time, so that they must be processed before time
    /// advances.
    pub(super) unsettled: bool,
    /// Time of the next event once no event is due, or [`NEVER`].
    next: u64,
    /// Ended tasklets that the host has not seen, in the order in which they ended.
    pub(super) ended: VecDeque<Ended>,
    /// Steps that communications with external partners have reached and that the user of the
    /// device has not fetched, in order of time.
    pub(super) exchanges: VecDeque<Exchange>,
    /// Time so far by the state of the foreground.
    pub(super) occupancy: Occupancy,
    /// Indices of streams, used while multiprocessors are distributed. Kept so that this allocates
    /// nothing.
    pub(super) order: Vec<usize>,
    /// Empty lists for [`Launch::waited_for_by`], kept for the same reason.
    spare: Vec<Vec<TaskletId>>,
}

impl DeviceState {
    /// Creates an idle device at time 0.
    pub(super) fn new(hardware: Hardware) -> Self {
        Self {
            free: hardware.multiprocessors,
            hardware,
            now: 0,
            streams: Vec::new(),
            launches: 0,
            first_short: None,
            unsettled: false,
            next: NEVER,
            ended: VecDeque::new(),
            exchanges: VecDeque::new(),
            occupancy: Occupancy::default(),
            order: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Appends a launch to the stream of its job on `lane`, which is created at the first launch.
    /// Sets its `order` and `waited_for_by`, and clears its `after` if that tasklet has already
    /// ended or was never launched.
    pub(super) fn launch(&mut self, lane: Lane, mut launch: Launch) {
        let stream = self.stream(launch.tasklet.job, lane);
        launch.order = self.launches;
        launch.waited_for_by = self.spare.pop().unwrap_or_default();
        launch.after = launch.after.filter(|&before| match self.find(before) {
            Some(found) => {
                found.waited_for_by.push(launch.tasklet);
                true
            }
            None => false,
        });
        self.launches += 1;
        self.streams[stream].push(launch);
        self.unsettled = true;
    }

    /// Returns a tasklet that has not ended.
    fn find(&mut self, tasklet: TaskletId) -> Option<&mut Launch> {
        self.streams.iter_mut().find_map(|stream| {
            let place = stream.find(tasklet)?;
            stream.launches.get_mut(place)
        })
    }

    fn stream(&mut self, job: JobId, lane: Lane) -> usize {
        let found = self.streams.iter().position(|stream| stream.job == job && stream.lane == lane);
        found.unwrap_or_else(|| {
            let number = self.streams.len();
            self.streams.push(Stream {
                job,
                lane,
                priority: u8::from(self.hardware.priorities && !job.is_foreground()),
                hardware_queue: number % self.hardware.queues,
                launches: VecDeque::new(),
                in_order: true,
                running: None,
                free_from: 0,
                last_end: 0,
            });
            number
        })
    }

    /// Returns the time of the next event, or `None` if nothing happens without another call.
    pub(super) fn next_event(&self) -> Option<u64> {
        let next = if self.unsettled { self.now } else { self.next };
        (next < NEVER).then_some(next)
    }

    fn find_next_event(&mut self) {
        self.next = self.streams.iter().map(|stream| stream.next_event(self.now)).min().unwrap_or(NEVER);
    }

    /// Advances time to `to` and processes all events until then.
    pub(super) fn advance(&mut self, to: u64) {
        while let Some(event) = self.next_event().filter(|&event| event <= to) {
            self.pass(event);
            self.settle();
        }
        self.pass(to);
    }

    fn pass(&mut self, to: u64) {
        if to > self.now {
            let state = self.foreground_state();
            self.occupancy.record(state, self.runs_background(), Duration::from_nanos(to - self.now));
            self.now = to;
        }
    }

    /// Whether a background tasklet has started and not ended.
    pub(super) fn runs_background(&self) -> bool {
        self.streams.iter().any(|stream| !stream.job.is_foreground() && stream.is_begun())
    }

    /// Returns the current activity of the foreground.
    pub(super) fn foreground_state(&self) -> ForegroundState {
        let busy = |lane: Lane| {
            let mut of_foreground = self.streams.iter().filter(|stream| stream.job.is_foreground());
            of_foreground.find(|stream| stream.lane == lane && stream.is_busy(self.now))
        };
        match (busy(Lane::Compute), busy(Lane::Communication)) {
            (Some(_), _) => ForegroundState::Computing,
            (None, None) => ForegroundState::Idle,
            (None, Some(stream)) => match &stream.running {
                Some(running) if running.phase != Phase::Working => ForegroundState::Waiting,
                _ => ForegroundState::Transferring,
            },
        }
    }

    /// Processes everything that is due now: first all ends, then the starts that they allow.
    fn settle(&mut self) {
        loop {
            self.unsettled = false;
            for stream in 0..self.streams.len() {
                self.end_phase(stream);
                self.skip_empty(stream);
            }
            self.dispatch();
            self.set_rates();
            let is_due =
                |stream: &Stream| stream.running.as_ref().is_some_and(|running| running.until <= self.now);
            if !self.unsettled && !self.streams.iter().any(is_due) {
                break;
            }
        }
        self.find_next_event();
    }

    fn end_phase(&mut self, stream: usize) {
        let now = self.now;
        let at = &mut self.streams[stream];
        let Some(running) = at.running.as_mut().filter(|running| running.until <= now) else { return };
        if running.stops_at_a_wave() {
            self.free += running.stop(now);
            return;
        }
        let Some(head) = at.launches.front() else { return };
        match running.phase {
            Phase::Waiting => {
                running.phase = Phase::Working;
                running.until = NEVER;
                return;
            }
            Phase::Working if head.has_external_partners() => {
                running.phase = Phase::Ending;
                running.until = head.partners_end.map_or(NEVER, |end| end.max(now));
                self.exchanges.push_back(Exchange {
                    tasklet: head.tasklet,
                    at: Duration::from_nanos(now),
                    awaits: Awaits::End,
                });
                if running.until > now {
                    return;
                }
            }
            Phase::Working | Phase::Ending => {}
        }
        self.free += running.given;
        at.running = None;
        if head.is_begun() {
            self.end_tasklet(stream);
        } else {
            at.free_from = now.saturating_add(head.gap);
        }
    }

    /// Ends tasklets without kernels at the head of a stream.
    fn skip_empty(&mut self, stream: usize) {
        while self.streams[stream].head_opens().is_some_and(|opens| opens <= self.now)
            && self.streams[stream].launches.front().is_some_and(|head| head.kernel_count() == 0)
        {
            self.end_tasklet(stream);
        }
    }

    fn end_tasklet(&mut self, stream: usize) {
        let stream = &mut self.streams[stream];
        let Some(mut launch) = stream.launches.pop_front() else { return };
        stream.last_end = self.now;
        if launch.kernel_count() > 0 {
            stream.free_from = self.now.saturating_add(self.hardware.kernel_gap);
        }
        let opened = launch.opened.unwrap_or(self.now);
        self.ended.push_back(Ended { tasklet: launch.tasklet, opened, at: self.now });
        let ready_from = self.now.saturating_add(self.hardware.kernel_gap);
        for waiting in launch.waited_for_by.drain(..) {
            if let Some(waiting) = self.find(waiting) {
                (waiting.after, waiting.ready_from) = (None, ready_from);
                self.unsettled = true;
            }
        }
        self.spare.push(launch.waited_for_by);
    }

    /// Sets to `at` the time of the event `awaits` of the communication `tasklet`: the arrival or
    /// the end of its external partners.
    ///
    /// # Errors
    /// [`Error::NotInFlight`] or [`Error::PartnersNotExternal`].
    pub(super) fn set_partner_time(
        &mut self,
        tasklet: TaskletId,
        awaits: Awaits,
        at: u64,
    ) -> Result<(), Error> {
        let at = at.max(self.now);
        let found = self.streams.iter_mut().find_map(|stream| Some((stream.find(tasklet)?, stream)));
        let (place, stream) = found.ok_or(Error::NotInFlight(tasklet))?;
        let launch = &mut stream.launches[place];
        if !launch.has_external_partners() {
            return Err(Error::PartnersNotExternal(tasklet));
        }
        let phase = match awaits {
            Awaits::Partners => {
                launch.partners_at = Some(at);
                Phase::Waiting
            }
            Awaits::End => {
                launch.partners_end = Some(at);
                Phase::Ending
            }
        };
        // Only the head of a stream runs.
        if let Some(running) = stream.running.as_mut().filter(|running| place == 0 && running.phase == phase)
        {
            running.until = at;
        }
        self.find_next_event();
        Ok(())
    }
}

//! Execution of the work of all streams in virtual time.
//!
//! A device runs one kernel at a time. When it is free, it starts the ready kernel with the highest
//! priority, and among equals the one launched first. Running kernels are not preempted. Kernels of
//! duration 0 need no free device. Collectives take the duration given by their calls. All other
//! work (records, waits, copies, memory operations) takes no time.

use super::Driver;
use crate::state::{
    Code, Fault, Handle, Outcome,
    events::Record,
    nodes::NodeWork,
    order::VectorClock,
    work::{Queued, Work},
};
use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum number of consecutive queries while nothing runs. More are considered an endless loop.
const PATIENCE: u32 = 10_000;

/// Work whose end advances the clock.
enum Ending {
    /// The kernel that runs on the given device.
    Kernel(i32),
    /// A batch of NCCL operations.
    Transfer,
}

impl Driver {
    /// Returns the virtual time since the last reset, in ns.
    pub(crate) fn now(&self) -> u64 {
        self.engine.now
    }

    /// Refuses work on a device on which a kernel has failed. Every call in its contexts returns
    /// the error of the kernel, as with the real driver.
    pub(in crate::state) fn check_device_lives(&self, device: i32) -> Outcome<()> {
        self.engine.lost.get(&device).map_or(Ok(()), |code| Err(Fault::plain(*code)))
    }

    /// Returns one line for each kernel that ended: start, end and time of enqueueing in ns,
    /// device, priority, 1 for a node of a graph or else 0, stream and name.
    pub(crate) fn timeline(&self) -> String {
        self.engine.finished.concat()
    }

    /// Appends work to the queue of a stream, after the time that the launch takes on the host.
    pub(super) fn enqueue(&mut self, stream: Handle, work: Work) {
        if matches!(work, Work::Graph { .. } | Work::Single(NodeWork::Kernel(_))) {
            self.advance(self.settings.launch_ns as u64);
        }
        self.engine.idle_queries = 0;
        let mut known = self.known_by_host(stream);
        self.order_with_default_stream(stream, known.as_mut());
        self.push(stream, work, known);
    }

    pub(super) fn push(&mut self, stream: Handle, work: Work, known: Option<VectorClock>) {
        self.engine.launches += 1;
        let (launch, enqueued) = (self.engine.launches, self.engine.now);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(Queued { launch, enqueued, known, work });
        }
    }

    /// Makes work in a context's default stream wait for its blocking streams, and work in a
    /// blocking stream wait for the default stream. Adds finished work of these streams to
    /// `predecessors`.
    fn order_with_default_stream(&mut self, handle: Handle, known: Option<&mut VectorClock>) {
        let Some(stream) = self.streams.get(&handle).filter(|stream| !stream.non_blocking) else { return };
        let Some(&default) = self.engine.default_streams.get(&stream.context) else { return };
        let context = stream.context;
        let others = self.streams.iter().filter(|(other, stream)| {
            (default == handle || **other == default)
                && **other != handle
                && stream.context == context
                && !stream.non_blocking
        });
        let (idle, busy): (Vec<_>, Vec<_>) = others.partition(|(_, stream)| stream.queue.is_empty());
        let [idle, busy] =
            [idle, busy].map(|streams| streams.iter().map(|(other, _)| **other).collect::<Vec<_>>());
        if let Some(known) = known {
            self.after_idle_streams(&idle, context, known);
        }
        for other in busy {
            let number = self.engine.new_record();
            // A record without an event.
            self.push(other, Work::Record { event: 0, number }, None);
            self.push(handle, Work::Wait { number }, None);
        }
    }

    /// Advances the clock and completes the work that ends meanwhile.
    pub(crate) fn advance(&mut self, nanoseconds: u64) {
        let until = self.engine.now + nanoseconds;
        self.settle();
        while self.next_end().is_some_and(|(ends, _)| ends <= until) {
            self.end_next();
            self.settle();
        }
        self.engine.now = until;
    }

    /// Advances the clock to the next end of a kernel or collective, by at most `nanoseconds`.
    pub(crate) fn advance_to_end(&mut self, nanoseconds: u64) {
        self.settle();
        let until = self.engine.now + nanoseconds;
        let next = self.next_end().map_or(until, |(ends, _)| ends.min(until));
        self.advance(next.saturating_sub(self.engine.now));
    }

    /// Returns the time of the next end of work that takes time.
    fn next_end(&self) -> Option<(u64, Ending)> {
        let kernel = self.next_kernel_end().map(|(device, ends)| (ends, Ending::Kernel(device)));
        let transfer = self.nccl.next_end().map(|ends| (ends, Ending::Transfer));
        [kernel, transfer].into_iter().flatten().min_by_key(|(ends, _)| *ends)
    }

    /// Advances the clock to the next end.
    fn end_next(&mut self) {
        match self.next_end() {
            Some((_, Ending::Kernel(device))) => self.end_kernel(device),
            Some((ends, Ending::Transfer)) => self.engine.now = self.engine.now.max(ends),
            None => {}
        }
    }

    /// Advances the clock until `done`.
    ///
    /// Fails if `done` cannot become true or if a kernel has failed on the device.
    pub(super) fn run_until(&mut self, device: i32, done: impl Fn(&Driver) -> bool) -> Outcome<()> {
        self.wait(Some(device), done)
    }

    /// Waits until `done` for NCCL ranks, independently of a device.
    pub(super) fn wait_for_ranks(&mut self, done: impl Fn(&Driver) -> bool) -> Outcome<()> {
        self.wait(None, done)
    }

    /// Advances the clock until `done`. While no work can progress and ranks of other threads are
    /// awaited, other threads may use the driver.
    fn wait(&mut self, device: Option<i32>, done: impl Fn(&Driver) -> bool) -> Outcome<()> {
        let mut patience = None;
        let mut changed = true;
        loop {
            changed |= self.settle();
            device.map_or(Ok(()), |device| self.check_device_lives(device))?;
            if done(self) {
                return Ok(());
            }
            if self.next_end().is_some() {
                self.end_next();
                (patience, changed) = (None, true);
                continue;
            }
            let deadlock = self.find_deadlock(device);
            let waits = device.is_none() || self.nccl.waits_for_ranks();
            if waits && deadlock.is_none() {
                let limit = Duration::from_millis(self.settings.patience_ms as u64);
                let until = *patience.get_or_insert_with(|| Instant::now() + limit);
                if self.let_others(until, mem::take(&mut changed)) {
                    continue;
                }
            }
            let text = deadlock.unwrap_or_else(|| format!("waits for ever: {}", self.stuck()));
            return Err(Fault::misuse(Code::LAUNCH_TIMEOUT, text));
        }
    }

    /// Advances the clock by the duration of a query and checks `done`.
    ///
    /// Fails with `NOT_READY` if it is false.
    pub(super) fn query(&mut self, device: i32, done: impl Fn(&Driver) -> bool) -> Outcome<()> {
        self.advance(self.settings.query_ns as u64);
        self.settle();
        self.check_device_lives(device)?;
        if done(self) {
            self.engine.idle_queries = 0;
            return Ok(());
        }
        if self.nccl.waits_for_ranks() {
            // Ranks of other threads may come at any time.
            if let Some(deadlock) = self.find_deadlock(Some(device)) {
                self.tell(deadlock);
            }
        } else if self.next_end().is_none() || self.settings.query_ns == 0 {
            self.engine.idle_queries += 1;
        }
        if self.engine.idle_queries > PATIENCE {
            let text = format!("{PATIENCE} queries have found nothing under way: {}", self.stuck());
            return Err(Fault::misuse(Code::LAUNCH_TIMEOUT, text));
        }
        Err(Fault::plain(Code::NOT_READY))
    }

    fn stuck(&self) -> String {
        let stuck: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.queue.is_empty())
            .map(|(handle, _)| self.handles.name(*handle))
            .collect();
        format!("nothing runs, and work is left in {}", stuck.join(", "))
    }

    /// Executes all ready work that takes no time, and starts kernels on free devices. Returns
    /// whether there was any.
    pub(in crate::state) fn settle(&mut self) -> bool {
        let mut any = false;
        loop {
            let streams: Vec<_> = self.streams.keys().copied().collect();
            let mut moved = false;
            for stream in streams {
                while self.step(stream) {
                    moved = true;
                }
            }
            if self.start_kernels() {
                let now = self.engine.now;
                while let Some((device, _)) = self.next_kernel_end().filter(|(_, ends)| *ends <= now) {
                    self.end_kernel(device);
                }
                moved = true;
            }
            if !moved {
                break;
            }
            any = true;
            self.engine.idle_queries = 0;
        }
        self.bury_streams();
        any
    }

    /// Executes the head of a stream's queue if it is ready and takes no time. Returns whether
    /// anything was executed.
    fn step(&mut self, handle: Handle) -> bool {
        self.reach(handle);
        let Some(head) = self.streams.get(&handle).and_then(|stream| stream.queue.front()) else {
            return false;
        };
        match &head.work {
            Work::Record { event, number } => {
                let (event, number) = (*event, *number);
                self.pass_record(event, number);
                self.note_record(handle, number);
            }
            Work::Wait { number } => {
                let number = *number;
                if !self.engine.has_passed(number) {
                    return false;
                }
                self.note_wait(handle, number);
            }
            Work::DroppedWait { number } => {
                let number = *number;
                self.note_dropped_wait(handle, number);
            }
            Work::Single(NodeWork::Kernel(_)) => return false,
            Work::Single(work) => {
                let work = work.clone();
                if !self.do_now(handle, None, &work) {
                    return false;
                }
            }
            Work::Allocated { address } => {
                let address = *address;
                self.note_allocation(handle, address);
            }
            Work::Collectives(id) => {
                let id = *id;
                if !self.run_batch(handle, None, id) {
                    return false;
                }
            }
            Work::Graph { plan, batches } => {
                let (plan, batches) = (Arc::clone(plan), batches.clone());
                let (moved, ended) = self.step_graph(handle, &plan, &batches);
                if !ended {
                    return moved;
                }
            }
        }
        self.drop_head(handle);
        true
    }

    fn pass_record(&mut self, event: Handle, number: u64) {
        self.engine.unpassed.remove(&number);
        let now = self.engine.now;
        // The event may have been destroyed or recorded again.
        if let Some(Record::Stream { number: last, passed }) =
            self.events.get_mut(&event).map(|event| &mut event.last)
        {
            if *last == number {
                *passed = Some(now);
            }
        }
    }

    pub(super) fn drop_head(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.queue.pop_front();
            stream.graph = None;
        }
    }
}

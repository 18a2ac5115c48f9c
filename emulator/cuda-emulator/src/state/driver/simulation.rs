//! Execution of the work of all streams in virtual time, in ns.
//!
//! A device runs one kernel at a time. When it is free, it starts the ready kernel with the highest
//! priority, and among equals the one that became ready first, then the one launched first. Running
//! kernels are not preempted. Kernels of duration 0 need no free device. Collectives take the
//! duration given by their calls. All other work (records, waits, copies, memory operations) takes
//! no time. The head of a stream is the first entry of its queue.

use super::Driver;
use crate::state::{
    CallError, CallResult, Code, Handle,
    events::Record,
    nodes::NodeWork,
    order::VectorClock,
    work::{QueuedWork, StreamWork},
};
use std::{
    mem,
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum number of consecutive queries while nothing runs. More are considered an endless loop.
const MAX_IDLE_QUERIES: u32 = 10_000;

/// Work whose end advances the clock.
enum Completion {
    /// The kernel that runs on the given device.
    Kernel(i32),
    /// A batch of NCCL operations.
    Collectives,
}

impl Driver {
    /// Returns the virtual time since the last reset, in ns.
    pub(crate) fn now(&self) -> u64 {
        self.simulation.now
    }

    /// Checks that no kernel has failed on a device. If one has, the result is the error of the
    /// kernel, which every call in the contexts of the device returns, as with the real driver.
    pub(in crate::state) fn check_device_not_lost(&self, device: i32) -> CallResult<()> {
        self.simulation.lost.get(&device).map_or(Ok(()), |code| Err(CallError::plain(*code)))
    }

    /// Returns one line for each kernel that ended: start, end and time of enqueueing in ns,
    /// device, priority, 1 for a node of a graph or else 0, bytes read, bytes written, stream and
    /// name.
    pub(crate) fn timeline(&self) -> String {
        self.simulation.finished.concat()
    }

    /// Appends work to the queue of a stream. For a kernel or graph, the clock is first advanced by
    /// the duration of a launch on the host. The work waits for other work as the rules of the
    /// default stream demand.
    pub(super) fn enqueue(&mut self, stream: Handle, work: StreamWork) {
        if matches!(work, StreamWork::Graph { .. } | StreamWork::Single(NodeWork::Kernel(_))) {
            self.advance(self.settings.launch_ns as u64);
        }
        self.simulation.idle_queries = 0;
        let mut predecessors = self.clock_of_host(stream);
        self.order_with_default_stream(stream, predecessors.as_mut());
        self.push(stream, work, predecessors);
    }

    /// Appends work to the queue of a stream without advancing the clock. `predecessors` becomes
    /// the field of [`QueuedWork`] with this name.
    pub(super) fn push(&mut self, stream: Handle, work: StreamWork, predecessors: Option<VectorClock>) {
        self.simulation.enqueued_count += 1;
        let (number, enqueued) = (self.simulation.enqueued_count, self.simulation.now);
        if let Some(stream) = self.streams.get_mut(&stream) {
            stream.queue.push_back(QueuedWork { number, enqueued, predecessors, work });
        }
    }

    /// Makes work in a context's default stream wait for its blocking streams, and work in a
    /// blocking stream wait for the default stream. Adds finished work of these streams to
    /// `predecessors`.
    fn order_with_default_stream(&mut self, handle: Handle, predecessors: Option<&mut VectorClock>) {
        let Some(stream) = self.streams.get(&handle).filter(|stream| !stream.non_blocking) else { return };
        let Some(&default) = self.simulation.default_streams.get(&stream.context) else { return };
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
        if let Some(predecessors) = predecessors {
            self.add_idle_streams(&idle, context, predecessors);
        }
        for other in busy {
            let number = self.simulation.new_record();
            // A record without an event.
            self.push(other, StreamWork::Record { event: 0, number }, None);
            self.push(handle, StreamWork::Wait { number }, None);
        }
    }

    /// Advances the clock by a duration and completes the work that ends meanwhile.
    pub(crate) fn advance(&mut self, nanoseconds: u64) {
        let until = self.simulation.now + nanoseconds;
        self.execute_ready_work();
        while self.next_end().is_some_and(|(ends, _)| ends <= until) {
            self.advance_to_next_end();
            self.execute_ready_work();
        }
        self.simulation.now = until;
    }

    /// Advances the clock to the next end of a kernel or collective, but at most by `nanoseconds`.
    pub(crate) fn advance_to_end(&mut self, nanoseconds: u64) {
        self.execute_ready_work();
        let until = self.simulation.now + nanoseconds;
        let next = self.next_end().map_or(until, |(ends, _)| ends.min(until));
        self.advance(next.saturating_sub(self.simulation.now));
    }

    /// Returns the time of the next end of work that takes time.
    fn next_end(&self) -> Option<(u64, Completion)> {
        let kernel = self.next_kernel_end().map(|(device, ends)| (ends, Completion::Kernel(device)));
        let transfer = self.nccl.next_end().map(|ends| (ends, Completion::Collectives));
        [kernel, transfer].into_iter().flatten().min_by_key(|(ends, _)| *ends)
    }

    /// Advances the clock to the next end.
    fn advance_to_next_end(&mut self) {
        match self.next_end() {
            Some((_, Completion::Kernel(device))) => self.end_kernel(device),
            Some((ends, Completion::Collectives)) => self.simulation.now = self.simulation.now.max(ends),
            None => {}
        }
    }

    /// Advances the clock until `done` is true. It is an error if that can never happen or if a
    /// kernel has failed on the device.
    pub(super) fn wait_on_device(&mut self, device: i32, done: impl Fn(&Driver) -> bool) -> CallResult<()> {
        self.wait(Some(device), done)
    }

    /// Advances the clock until `done` is true, whatever the state of the devices. It is an error
    /// if that can never happen.
    pub(super) fn wait_for_ranks(&mut self, done: impl Fn(&Driver) -> bool) -> CallResult<()> {
        self.wait(None, done)
    }

    /// Advances the clock until `done`. While no work can progress and ranks of other threads are
    /// awaited, other threads may use the driver.
    fn wait(&mut self, device: Option<i32>, done: impl Fn(&Driver) -> bool) -> CallResult<()> {
        let mut deadline = None;
        let mut changed = true;
        loop {
            changed |= self.execute_ready_work();
            device.map_or(Ok(()), |device| self.check_device_not_lost(device))?;
            if done(self) {
                return Ok(());
            }
            if self.next_end().is_some() {
                self.advance_to_next_end();
                (deadline, changed) = (None, true);
                continue;
            }
            let deadlock = self.find_deadlock(device);
            let waits = device.is_none() || self.nccl.waits_for_ranks();
            if waits && deadlock.is_none() {
                let limit = Duration::from_millis(self.settings.rank_timeout_ms as u64);
                let until = *deadline.get_or_insert_with(|| Instant::now() + limit);
                if self.yield_to_other_threads(until, mem::take(&mut changed)) {
                    continue;
                }
            }
            let text = deadlock
                .unwrap_or_else(|| format!("this wait never ends: {}", self.describe_stuck_streams()));
            return Err(CallError::misuse(Code::LAUNCH_TIMEOUT, text));
        }
    }

    /// Advances the clock by the duration of a query and checks `done`. The error is `NOT_READY` if
    /// it is false.
    pub(super) fn query(&mut self, device: i32, done: impl Fn(&Driver) -> bool) -> CallResult<()> {
        self.advance(self.settings.query_ns as u64);
        self.execute_ready_work();
        self.check_device_not_lost(device)?;
        if done(self) {
            self.simulation.idle_queries = 0;
            return Ok(());
        }
        if self.nccl.waits_for_ranks() {
            // Ranks of other threads may come at any time.
            if let Some(deadlock) = self.find_deadlock(Some(device)) {
                self.report_deadlock(deadlock);
            }
        } else if self.next_end().is_none() || self.settings.query_ns == 0 {
            self.simulation.idle_queries += 1;
        }
        if self.simulation.idle_queries > MAX_IDLE_QUERIES {
            let text = format!(
                "{MAX_IDLE_QUERIES} consecutive queries found no work in progress: {}",
                self.describe_stuck_streams()
            );
            return Err(CallError::misuse(Code::LAUNCH_TIMEOUT, text));
        }
        Err(CallError::plain(Code::NOT_READY))
    }

    fn describe_stuck_streams(&self) -> String {
        let names: Vec<_> = self
            .streams
            .iter()
            .filter(|(_, stream)| !stream.queue.is_empty())
            .map(|(handle, _)| self.handles.name(*handle))
            .collect();
        format!("nothing runs, and work is pending in {}", names.join(", "))
    }

    /// Executes all ready work that takes no time, and starts kernels on free devices, until
    /// nothing more is ready. Returns whether there was any such work.
    pub(in crate::state) fn execute_ready_work(&mut self) -> bool {
        let mut any = false;
        loop {
            let streams: Vec<_> = self.streams.keys().copied().collect();
            let mut moved = false;
            for stream in streams {
                while self.advance_stream(stream) {
                    moved = true;
                }
            }
            if self.start_kernels() {
                let now = self.simulation.now;
                while let Some((device, _)) = self.next_kernel_end().filter(|(_, ends)| *ends <= now) {
                    self.end_kernel(device);
                }
                moved = true;
            }
            if !moved {
                break;
            }
            any = true;
            self.simulation.idle_queries = 0;
        }
        self.remove_finished_streams();
        any
    }

    /// Executes the head of a stream's queue if it is ready and takes no time. Returns whether
    /// anything was executed.
    fn advance_stream(&mut self, handle: Handle) -> bool {
        self.apply_enqueued_order(handle);
        let Some(head) = self.streams.get(&handle).and_then(|stream| stream.queue.front()) else {
            return false;
        };
        match &head.work {
            StreamWork::Record { event, number } => {
                let (event, number) = (*event, *number);
                self.complete_record(event, number);
                self.note_record(handle, number);
            }
            StreamWork::Wait { number } => {
                let number = *number;
                if !self.simulation.is_record_complete(number) {
                    return false;
                }
                self.note_wait(handle, number);
            }
            StreamWork::DroppedWait { number } => {
                let number = *number;
                self.note_dropped_wait(handle, number);
            }
            StreamWork::Single(NodeWork::Kernel(_)) => return false,
            StreamWork::Single(work) => {
                let work = work.clone();
                if !self.execute_instant(handle, None, &work) {
                    return false;
                }
            }
            StreamWork::Allocated { address } => {
                let address = *address;
                self.note_allocation(handle, address);
            }
            StreamWork::Collectives(id) => {
                let id = *id;
                if !self.advance_batch(handle, None, id) {
                    return false;
                }
            }
            StreamWork::Graph { steps, batches } => {
                let (steps, batches) = (Arc::clone(steps), batches.clone());
                let (moved, ended) = self.advance_graph(handle, &steps, &batches);
                if !ended {
                    return moved;
                }
            }
        }
        self.pop_head(handle);
        true
    }

    fn complete_record(&mut self, event: Handle, number: u64) {
        self.simulation.pending_records.remove(&number);
        let now = self.simulation.now;
        // The event may have been destroyed or recorded again.
        if let Some(Record::Stream { number: last, completed }) =
            self.events.get_mut(&event).map(|event| &mut event.last)
        {
            if *last == number {
                *completed = Some(now);
            }
        }
    }

    /// Removes the head of a stream, whose work is complete. The next entry becomes the head.
    pub(super) fn pop_head(&mut self, handle: Handle) {
        if let Some(stream) = self.streams.get_mut(&handle) {
            stream.queue.pop_front();
            stream.graph = None;
        }
    }
}

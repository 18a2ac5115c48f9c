//! Notifications of the driver to the order check, which finds uses of the same memory that nothing
//! orders. Without the check they have no effect. A task is work that uses memory, and a clock is a
//! set of tasks. `node` is the index of a step of the graph launch at the head of the stream, or
//! `None` for work outside graphs.

use super::Driver;
use crate::state::{
    Handle,
    nodes::{CopyEndpoint, CopyNode},
    order::{DroppedWait, OrderCheck, Task, VectorClock},
    streams::Stream,
    work::StreamWork,
};
use ptx_emulator::AccessKind;
use std::sync::Arc;

impl Driver {
    fn order(&mut self) -> Option<&mut OrderCheck> {
        self.checks_order().then_some(&mut self.order)
    }

    /// Returns whether the settings turn the order check on.
    pub(in crate::state) fn checks_order(&self) -> bool {
        self.settings.order_check != 0
    }

    /// Returns the tasks that the calling thread knows to be complete when it enqueues work in a
    /// stream, or `None` if order is not checked.
    pub(in crate::state) fn clock_of_host(&self, stream: Handle) -> Option<VectorClock> {
        self.checks_order().then(|| self.order.host_clock(self.device_of_stream(stream)))
    }

    /// Adds the work of the streams `idle` of a context, and of its destroyed blocking streams, to
    /// `predecessors`.
    pub(in crate::state) fn add_idle_streams(
        &self,
        idle: &[Handle],
        context: Handle,
        predecessors: &mut VectorClock,
    ) {
        let idle = idle.iter().filter_map(|stream| self.order.chains.of_stream(*stream));
        idle.chain(self.order.destroyed_blocking.get(&context)).for_each(|clock| predecessors.join(clock));
    }

    /// Orders the head of a stream after the predecessors that were determined when it was
    /// enqueued.
    pub(in crate::state) fn apply_enqueued_order(&mut self, stream: Handle) {
        if !self.checks_order() {
            return;
        }
        let Some(head) = self.streams.get_mut(&stream).and_then(|stream| stream.queue.front_mut()) else {
            return;
        };
        if let Some(predecessors) = head.predecessors.take() {
            self.order.chains.add_predecessors(stream, None, &predecessors);
        }
    }

    /// Starts a task at the head of a stream or at a step of the graph there. `label` describes the
    /// task. Returns `None` if order is not checked.
    pub(in crate::state) fn begin_task(
        &mut self,
        stream: Handle,
        node: Option<usize>,
        label: impl FnOnce(&Driver) -> String,
    ) -> Option<Arc<Task>> {
        if !self.checks_order() {
            return None;
        }
        self.apply_enqueued_order(stream);
        let (device, name) = (self.device_of_stream(stream), self.handles.name(stream));
        let label = format!("{} in {name} of device {device}", label(self));
        let dependencies = self.dependencies(stream, node);
        let node = node.map(|node| (node, dependencies.as_slice()));
        Some(self.order.chains.begin(stream, node, label))
    }

    fn dependencies(&self, stream: Handle, node: Option<usize>) -> Vec<usize> {
        let head = self.streams.get(&stream).and_then(|stream| stream.queue.front());
        match (head.map(|head| &head.work), node) {
            (Some(StreamWork::Graph { steps, .. }), Some(node)) => steps.list[node].dependencies.clone(),
            _ => Vec::new(),
        }
    }

    /// Orders the later work of a stream, or the steps that depend on `node`, after the tasks in
    /// `clock`.
    pub(in crate::state) fn add_predecessors(
        &mut self,
        stream: Handle,
        node: Option<usize>,
        clock: &VectorClock,
    ) {
        if !self.checks_order() {
            return;
        }
        let dependencies = self.dependencies(stream, node);
        let node = node.map(|node| (node, dependencies.as_slice()));
        self.order.chains.add_predecessors(stream, node, clock);
    }

    /// Records that work that uses no memory is complete, so that the steps that depend on it are
    /// ordered after its own dependencies.
    pub(in crate::state) fn complete_without_task(&mut self, stream: Handle, node: Option<usize>) {
        self.add_predecessors(stream, node, &VectorClock::default());
    }

    /// Records that a task uses `bytes` bytes at an address. Pageable host memory is ignored, and
    /// so is a task of `None`.
    pub(in crate::state) fn note_access(
        &mut self,
        task: Option<&Arc<Task>>,
        kind: AccessKind,
        address: u64,
        bytes: u64,
    ) {
        let Some(task) = task else { return };
        let Some((start, length)) = self.memory.allocation(address) else { return };
        let offset = address - start;
        self.order.add_use((start, length), kind, offset..offset + bytes, task);
    }

    /// Records that a task reads the source and writes the destination of a copy.
    pub(in crate::state) fn note_copy(&mut self, task: Option<&Arc<Task>>, copy: &CopyNode) {
        for (endpoint, kind) in [(&copy.from, AccessKind::Read), (&copy.to, AccessKind::Write)] {
            let address = match endpoint {
                CopyEndpoint::Device(address) => *address,
                CopyEndpoint::Host(span) => span.address() as u64,
                CopyEndpoint::Snapshot(_) => continue,
            };
            self.note_access(task, kind, address, copy.bytes as u64);
        }
    }

    /// Records the memory accesses of the kernel that was executed last on a device. They are
    /// discarded if `task` is `None`. Returns the number of bytes that it read and wrote, each byte
    /// counted once, or zeros if order is not checked.
    pub(in crate::state) fn note_kernel_accesses(
        &mut self,
        task: Option<&Arc<Task>>,
        device: i32,
    ) -> [u64; 2] {
        let mut bytes = [0; 2];
        if self.checks_order() {
            for used in self.device_memory(device).take_accesses() {
                bytes[usize::from(used.kind != AccessKind::Read)] += used.bytes;
                self.note_access(task, used.kind, used.address, used.bytes);
            }
        }
        bytes
    }

    /// Orders a stream, or the steps that depend on `node`, after the tasks that wrote the value at
    /// an address, for which it has waited.
    pub(in crate::state) fn order_after_writers(
        &mut self,
        stream: Handle,
        node: Option<usize>,
        address: u64,
    ) {
        if !self.checks_order() {
            return;
        }
        let mut clock = VectorClock::default();
        if let Some((start, _)) = self.memory.allocation(address) {
            let writers =
                self.order.allocations.get(&start).into_iter().flat_map(|uses| uses.writers(address - start));
            writers.for_each(|writer| clock.join(writer));
        }
        self.add_predecessors(stream, node, &clock);
    }

    /// Records that a stream has executed the event record with a number.
    pub(in crate::state) fn note_record(&mut self, stream: Handle, number: u64) {
        if let Some(order) = self.order() {
            let predecessors = order.chains.of_stream(stream).cloned().unwrap_or_default();
            order.records.insert(number, predecessors);
        }
    }

    /// Orders a stream after the event record with a number, for which it has waited.
    pub(in crate::state) fn note_wait(&mut self, stream: Handle, number: u64) {
        let Some(order) = self.order() else { return };
        if let Some(predecessors) = order.records.get(&number) {
            order.chains.add_predecessors(stream, None, predecessors);
        }
    }

    /// Records that a stream has reached the wait that the setting `drop_wait` drops. `record` is
    /// the number of the event record.
    pub(in crate::state) fn note_dropped_wait(&mut self, stream: Handle, record: u64) {
        if let Some(order) = self.order() {
            let predecessors = order.chains.of_stream(stream).cloned().unwrap_or_default();
            order.dropped_wait = Some(DroppedWait { record, predecessors });
        }
    }

    /// Returns whether the wait that the setting `drop_wait` drops would have ordered work that
    /// nothing else orders. `None` if the setting drops none, and until the stream has reached the
    /// wait and the event record is complete.
    pub(crate) fn dropped_wait_is_needed(&self) -> Option<bool> {
        let DroppedWait { record, predecessors } = self.order.dropped_wait.as_ref()?;
        Some(!predecessors.covers(self.order.records.get(record)?))
    }

    /// Records that a graph launch starts at the head of a stream.
    pub(in crate::state) fn note_graph_begin(&mut self, stream: Handle) {
        if let Some(order) = self.order() {
            order.chains.begin_graph(stream);
        }
    }

    /// Records that the graph launch at the head of a stream has ended.
    pub(in crate::state) fn note_graph_end(&mut self, stream: Handle) {
        if let Some(order) = self.order() {
            order.chains.end_graph(stream);
        }
    }

    /// Records that a destroyed stream is removed. Its clock is kept, for later work that is
    /// ordered after it.
    pub(in crate::state) fn note_stream_end(&mut self, handle: Handle, stream: &Stream) {
        let Some(order) = self.order() else { return };
        let predecessors = order.chains.remove(handle);
        order.destroyed.entry(stream.device).or_default().join(&predecessors);
        if !stream.non_blocking {
            order.destroyed_blocking.entry(stream.context).or_default().join(&predecessors);
        }
    }

    /// Records that the calling thread knows the work of a stream to be complete.
    pub(in crate::state) fn host_synchronised_stream(&mut self, stream: Handle) {
        let device = self.device_of_stream(stream);
        let Some(order) = self.order() else { return };
        if let Some(predecessors) = order.chains.of_stream(stream).cloned() {
            order.add_to_host_clock(device, &predecessors);
        }
    }

    /// Records that the calling thread knows the work of all streams of a device to be complete.
    pub(in crate::state) fn host_synchronised_device(&mut self, device: i32) {
        if !self.checks_order() {
            return;
        }
        let mut predecessors = self.order.destroyed.get(&device).cloned().unwrap_or_default();
        let streams = self.streams.iter().filter(|(_, stream)| stream.device == device);
        streams
            .filter_map(|(stream, _)| self.order.chains.of_stream(*stream))
            .for_each(|clock| predecessors.join(clock));
        self.order.add_to_host_clock(device, &predecessors);
    }

    /// Records that the calling thread knows the event record with a number, of an event of this
    /// device, to be complete.
    pub(in crate::state) fn host_synchronised_record(&mut self, number: u64, device: i32) {
        let Some(order) = self.order() else { return };
        if let Some(predecessors) = order.records.get(&number).cloned() {
            order.add_to_host_clock(device, &predecessors);
        }
    }

    /// Records that a stream has reached a stream-ordered allocation, which counts as a write of
    /// all its bytes.
    pub(in crate::state) fn note_allocation(&mut self, stream: Handle, address: u64) {
        let task = self.begin_task(stream, None, |_| "cuMemAllocAsync".to_owned());
        let bytes = self.memory.allocation(address).map_or(0, |(_, bytes)| bytes);
        self.note_access(task.as_ref(), AccessKind::Write, address, bytes);
    }

    /// Records that a task frees the allocation at an address. A task of `None` is ignored.
    pub(in crate::state) fn note_free_by_task(&mut self, task: Option<&Arc<Task>>, address: u64) {
        if let Some(task) = task {
            self.order.end_allocation(address, &task.label, &task.clock);
        }
    }

    /// Records that the host frees the allocation at an address, in the named call, which concerns
    /// this device.
    pub(in crate::state) fn note_free_by_host(&mut self, call: &str, device: i32, address: u64) {
        if let Some(order) = self.order() {
            let predecessors = order.host_clock(device);
            order.end_allocation(address, call, &predecessors);
        }
    }

    /// Returns one line for each pair of unordered tasks that use the same memory.
    pub(crate) fn conflicts_text(&self) -> String {
        self.order.conflicts.to_string()
    }
}

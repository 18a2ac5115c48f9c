//! What the driver tells the check.

use super::Driver;
use crate::state::{
    Handle,
    nodes::{CopyNode, Spot},
    order::{DroppedWait, OrderCheck, Task, VectorClock},
    streams::Stream,
    work::Work,
};
use ptx_emulator::AccessKind;
use std::sync::Arc;

impl Driver {
    fn order(&mut self) -> Option<&mut OrderCheck> {
        self.checks_order().then_some(&mut self.order)
    }

    pub(in crate::state) fn checks_order(&self) -> bool {
        self.settings.order_check != 0
    }

    /// What the calling thread knows that enqueues work.
    pub(in crate::state) fn known_by_host(&self, stream: Handle) -> Option<VectorClock> {
        self.checks_order().then(|| self.order.known(self.device_of_stream(stream)))
    }

    /// What a stream has done that has no work, and those that were destroyed which the default stream waits for, comes before work as
    /// well.
    pub(in crate::state) fn after_idle_streams(
        &self,
        idle: &[Handle],
        context: Handle,
        known: &mut VectorClock,
    ) {
        let idle = idle.iter().filter_map(|stream| self.order.chains.of_stream(*stream));
        idle.chain(self.order.destroyed_blocking.get(&context)).for_each(|clock| known.join(clock));
    }

    /// The work at the head of a stream's queue has come there.
    pub(in crate::state) fn reach(&mut self, stream: Handle) {
        if !self.checks_order() {
            return;
        }
        let Some(head) = self.streams.get_mut(&stream).and_then(|stream| stream.queue.front_mut()) else {
            return;
        };
        if let Some(known) = head.known.take() {
            self.order.chains.teach(stream, None, &known);
        }
    }

    /// Begins what uses memory at the head of a stream, or as a node of the graph that is there.
    pub(in crate::state) fn begin_task(
        &mut self,
        stream: Handle,
        node: Option<usize>,
        label: impl FnOnce(&Driver) -> String,
    ) -> Option<Arc<Task>> {
        if !self.checks_order() {
            return None;
        }
        self.reach(stream);
        let (device, name) = (self.device_of_stream(stream), self.handles.name(stream));
        let label = format!("{} in {name} of device {device}", label(self));
        let dependencies = self.dependencies(stream, node);
        let node = node.map(|node| (node, dependencies.as_slice()));
        Some(self.order.chains.begin(stream, node, label))
    }

    fn dependencies(&self, stream: Handle, node: Option<usize>) -> Vec<usize> {
        let head = self.streams.get(&stream).and_then(|stream| stream.queue.front());
        match (head.map(|head| &head.work), node) {
            (Some(Work::Graph { plan, .. }), Some(node)) => plan.nodes[node].dependencies.clone(),
            _ => Vec::new(),
        }
    }

    /// What comes after this work of a stream comes after what somebody knows as well.
    pub(in crate::state) fn teach(&mut self, stream: Handle, node: Option<usize>, clock: &VectorClock) {
        if !self.checks_order() {
            return;
        }
        let dependencies = self.dependencies(stream, node);
        let node = node.map(|node| (node, dependencies.as_slice()));
        self.order.chains.teach(stream, node, clock);
    }

    /// Does a node of a graph, if it is one, that uses no memory.
    pub(in crate::state) fn pass(&mut self, stream: Handle, node: Option<usize>) {
        self.teach(stream, node, &VectorClock::default());
    }

    /// Notes that a task uses memory, of the host only what is page-locked.
    pub(in crate::state) fn use_memory(
        &mut self,
        task: Option<&Arc<Task>>,
        kind: AccessKind,
        address: u64,
        bytes: u64,
    ) {
        let Some(task) = task else { return };
        let Some((start, length)) = self.memory.block(address) else { return };
        let offset = address - start;
        self.order.add_use((start, length), kind, offset..offset + bytes, task);
    }

    pub(in crate::state) fn use_by_copy(&mut self, task: Option<&Arc<Task>>, copy: &CopyNode) {
        for (spot, kind) in [(&copy.from, AccessKind::Read), (&copy.to, AccessKind::Write)] {
            let address = match spot {
                Spot::Device(address) => *address,
                Spot::Host(span) => span.address() as u64,
                Spot::Snapshot(_) => continue,
            };
            self.use_memory(task, kind, address, copy.bytes as u64);
        }
    }

    /// What kernels have used since this was called last. That of a kernel without a task is forgotten.
    pub(in crate::state) fn use_by_kernel(&mut self, task: Option<&Arc<Task>>, device: i32) {
        if !self.checks_order() {
            return;
        }
        for used in self.device_memory(device).take_accesses() {
            self.use_memory(task, used.kind, used.address, used.bytes);
        }
    }

    /// A stream has waited for a value in memory: it comes after whoever has written that.
    pub(in crate::state) fn after_value(&mut self, stream: Handle, node: Option<usize>, address: u64) {
        if !self.checks_order() {
            return;
        }
        let mut clock = VectorClock::default();
        if let Some((start, _)) = self.memory.block(address) {
            let writers =
                self.order.memory.get(&start).into_iter().flat_map(|uses| uses.writers(address - start));
            writers.for_each(|writer| clock.join(writer));
        }
        self.teach(stream, node, &clock);
    }

    pub(in crate::state) fn note_record(&mut self, stream: Handle, number: u64) {
        if let Some(order) = self.order() {
            let known = order.chains.of_stream(stream).cloned().unwrap_or_default();
            order.records.insert(number, known);
        }
    }

    /// A stream has waited for a record.
    pub(in crate::state) fn note_wait(&mut self, stream: Handle, number: u64) {
        let Some(order) = self.order() else { return };
        if let Some(known) = order.records.get(&number) {
            order.chains.teach(stream, None, known);
        }
    }

    /// A stream has come to a wait that a test has dropped.
    pub(in crate::state) fn note_dropped_wait(&mut self, stream: Handle, record: u64) {
        if let Some(order) = self.order() {
            let known = order.chains.of_stream(stream).cloned().unwrap_or_default();
            order.dropped_wait = Some(DroppedWait { record, known });
        }
    }

    /// Whether the wait that a test has dropped puts work into an order in which nothing else does, once its stream and the record have come
    /// to it.
    pub(crate) fn dropped_wait_orders(&self) -> Option<bool> {
        let DroppedWait { record, known } = self.order.dropped_wait.as_ref()?;
        Some(!known.covers(self.order.records.get(record)?))
    }

    pub(in crate::state) fn note_graph_begin(&mut self, stream: Handle) {
        if let Some(order) = self.order() {
            order.chains.begin_graph(stream);
        }
    }

    pub(in crate::state) fn note_graph_end(&mut self, stream: Handle) {
        if let Some(order) = self.order() {
            order.chains.end_graph(stream);
        }
    }

    /// A stream that was destroyed has no more work.
    pub(in crate::state) fn note_stream_end(&mut self, handle: Handle, stream: &Stream) {
        let Some(order) = self.order() else { return };
        let known = order.chains.remove(handle);
        order.destroyed.entry(stream.device).or_default().join(&known);
        if !stream.non_blocking {
            order.destroyed_blocking.entry(stream.context).or_default().join(&known);
        }
    }

    /// The calling thread knows that a stream has done its work.
    pub(in crate::state) fn host_knows_stream(&mut self, stream: Handle) {
        let device = self.device_of_stream(stream);
        let Some(order) = self.order() else { return };
        if let Some(known) = order.chains.of_stream(stream).cloned() {
            order.tell_host(device, &known);
        }
    }

    /// The calling thread knows that all streams of a device have done their work.
    pub(in crate::state) fn host_knows_device(&mut self, device: i32) {
        if !self.checks_order() {
            return;
        }
        let mut known = self.order.destroyed.get(&device).cloned().unwrap_or_default();
        let streams = self.streams.iter().filter(|(_, stream)| stream.device == device);
        streams
            .filter_map(|(stream, _)| self.order.chains.of_stream(*stream))
            .for_each(|clock| known.join(clock));
        self.order.tell_host(device, &known);
    }

    /// The calling thread knows that a record is done, of an event of this device.
    pub(in crate::state) fn host_knows_record(&mut self, number: u64, device: i32) {
        let Some(order) = self.order() else { return };
        if let Some(known) = order.records.get(&number).cloned() {
            order.tell_host(device, &known);
        }
    }

    /// A stream has come to where it allocates memory: whoever uses that comes after it.
    pub(in crate::state) fn note_allocation(&mut self, stream: Handle, address: u64) {
        let task = self.begin_task(stream, None, |_| "cuMemAllocAsync".to_owned());
        let bytes = self.memory.block(address).map_or(0, |(_, bytes)| bytes);
        self.use_memory(task.as_ref(), AccessKind::Write, address, bytes);
    }

    /// A stream frees an allocation.
    pub(in crate::state) fn freed_by_task(&mut self, task: Option<&Arc<Task>>, address: u64) {
        if let Some(task) = task {
            self.order.end_memory(address, &task.label, &task.clock);
        }
    }

    /// The host frees an allocation, by a call that was about this device.
    pub(in crate::state) fn freed_by_host(&mut self, call: &str, device: i32, address: u64) {
        if let Some(order) = self.order() {
            let known = order.known(device);
            order.end_memory(address, call, &known);
        }
    }

    /// A line for each pair of tasks that use the same memory and are not ordered.
    pub(crate) fn conflicts_text(&self) -> String {
        self.order.conflicts.to_string()
    }
}

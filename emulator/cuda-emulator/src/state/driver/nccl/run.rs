//! Execution of NCCL operations, from the call to the end of the batch. A batch holds the
//! operations that a rank enqueues together.

use crate::state::{
    CallError, CallResult, Code, Handle, NodeWork,
    driver::Driver,
    nccl::{
        Batch, BatchId, Entry, Operation, OperationGroup, OperationKey, OperationKind, element_bytes,
        is_reduction, reduce,
    },
    order::VectorClock,
};
use std::collections::BTreeMap;

impl Driver {
    /// Checks the arguments of an operation: element type, reduction, ranks, stream and memory.
    /// `comm` is the calling rank.
    pub(crate) fn check_operation(
        &mut self,
        comm: Handle,
        stream: Handle,
        operation: &Operation,
    ) -> CallResult<()> {
        let (rank, size, device) = self.comm_info(comm)?;
        self.check_device_not_lost(device)?;
        let Operation { kind, send, receive, count, element } = *operation;
        let Some(bytes) = element_bytes(element) else {
            return Err(CallError::misuse(
                Code::NOT_SUPPORTED,
                format!("elements of type {element} are not supported"),
            ));
        };
        if kind.reduction().is_some_and(|reduction| !is_reduction(reduction)) {
            return Err(CallError::misuse(
                Code::NOT_SUPPORTED,
                format!("the reduction of {operation} is not supported"),
            ));
        }
        if let Some(peer) = kind.peer().filter(|peer| *peer >= size) {
            return Err(CallError::value(format!("rank {peer} of {size}")));
        }
        let stream = self.stream(stream)?;
        let of = self.device_of_stream(stream);
        if of != device {
            let name = self.handles.name(stream);
            return Err(CallError::value(format!(
                "{name} is of device {of}, the communicator of device {device}"
            )));
        }
        if count == 0 {
            return Ok(());
        }
        let (given, got) = operation.bytes(size, bytes);
        let root = |root| root == rank;
        let sends = match kind {
            OperationKind::Broadcast { root: of } => root(of),
            _ => given > 0,
        };
        let receives = match kind {
            OperationKind::Reduce { root: of, .. } => root(of),
            _ => got > 0,
        };
        for (needed, address, bytes) in [(sends, send, given), (receives, receive, got)] {
            if needed {
                self.check_memory(address, bytes)?;
                if self.device_at(address) != Some(device) {
                    return Err(CallError::value(format!("{address:#x} is not memory of device {device}")));
                }
            }
        }
        Ok(())
    }

    /// Enqueues a group of operations in a stream, or adds it to the graph that the stream
    /// captures.
    pub(crate) fn submit_group(&mut self, stream: Handle, group: OperationGroup) -> CallResult<()> {
        let stream = self.stream(stream)?;
        self.submit(stream, NodeWork::Collectives(group))
    }

    /// Creates the batch of a group of operations and returns its number. From now on the calls of
    /// the other ranks are matched with it, in the order of the calls. A disagreement of the ranks
    /// is reported.
    pub(in crate::state) fn post_group(&mut self, stream: Handle, group: &OperationGroup) -> BatchId {
        let nccl = &mut self.nccl;
        nccl.batch_count += 1;
        let id = nccl.batch_count;
        let Some(comm) = nccl.comms.get_mut(&group.comm) else { return id };
        comm.batches.push_back(id);
        let communicator = &mut nccl.communicators[comm.communicator];
        let mut entries = Vec::new();
        for (index, operation) in group.operations.iter().enumerate() {
            let next = |counts: &mut BTreeMap<usize, u64>, peer| {
                let count = counts.entry(peer).or_insert(0);
                *count += 1;
                *count - 1
            };
            let (participant, key) = match operation.kind {
                OperationKind::Send { to } => {
                    (0, OperationKey::Message { from: comm.rank, to, number: next(&mut comm.sent, to) })
                }
                OperationKind::Receive { from } => {
                    (1, OperationKey::Message { from, to: comm.rank, number: next(&mut comm.received, from) })
                }
                _ => {
                    comm.collectives += 1;
                    (comm.rank, OperationKey::Collective(comm.collectives - 1))
                }
            };
            let others = communicator.pending_calls.entry(key).or_default();
            let other = others.iter().find_map(|(participant, (batch, index))| {
                let entry = nccl.batches.get(batch)?.entries.get(*index)?;
                let rank = match key {
                    OperationKey::Collective(_) => *participant,
                    OperationKey::Message { from, to, .. } => [from, to][*participant],
                };
                (!entry.operation.is_compatible_with(operation)).then_some((rank, entry.operation))
            });
            if let (Some((rank, theirs)), None) = (other, &communicator.disagreement) {
                let what = match key {
                    OperationKey::Collective(number) => format!("collective {}", number + 1),
                    OperationKey::Message { from, to, number } => {
                        format!("message {} from rank {from} to rank {to}", number + 1)
                    }
                };
                communicator.disagreement = Some(format!(
                    "the ranks of NCCL communicator {} disagree about its {what}: rank {rank} calls \
                     {theirs}, rank {} calls {operation}",
                    comm.communicator + 1,
                    comm.rank
                ));
            }
            others.insert(participant, (id, index));
            entries.push(Entry { operation: *operation, key, done: false });
        }
        nccl.batches.insert(
            id,
            Batch {
                comm: group.comm,
                stream,
                entries,
                started: false,
                duration_ns: group.duration_ns,
                ends: None,
                task: None,
                received_clock: VectorClock::default(),
            },
        );
        if let Some(text) =
            self.nccl.communicators.iter().find_map(|communicator| communicator.disagreement.clone())
        {
            self.report_deadlock(text);
        }
        id
    }

    /// Reports a deadlock, unless the same description was reported before.
    pub(in crate::state) fn report_deadlock(&mut self, text: String) {
        if !self.nccl.reported_deadlocks.contains(&text) {
            eprintln!("emulated NCCL: {text}");
            self.warn(text.clone());
            self.nccl.reported_deadlocks.push(text);
        }
    }

    /// Starts the batch with number `id`, at the head of a stream or at step `node` of the graph
    /// launch there, and executes its operations whose ranks have all started. Returns whether the
    /// batch has ended.
    pub(in crate::state) fn advance_batch(
        &mut self,
        stream: Handle,
        node: Option<usize>,
        id: BatchId,
    ) -> bool {
        // The batch is removed if its communicator is aborted.
        let Some(batch) = self.nccl.batches.get(&id) else { return true };
        let handle = batch.comm;
        let Some(comm) = self.nccl.comms.get(&handle) else { return true };
        if comm.batches.front() != Some(&id) {
            return false;
        }
        let communicator = comm.communicator;
        let waiting: Vec<_> =
            batch.entries.iter().filter(|entry| !entry.done).map(|entry| entry.key).collect();
        if !batch.started {
            let task = self.begin_task(stream, node, |driver| driver.batch_label(id));
            if let Some(batch) = self.nccl.batches.get_mut(&id) {
                (batch.started, batch.task) = (true, task);
            }
        }
        for key in waiting {
            self.execute_if_ready(communicator, key);
        }
        let now = self.simulation.now;
        let done = self.nccl.batches.get(&id).is_none_or(|batch| batch.ends.is_some_and(|ends| ends <= now));
        if done {
            if let Some(batch) = self.nccl.batches.remove(&id) {
                self.add_predecessors(stream, node, &batch.received_clock);
            }
            if let Some(comm) = self.nccl.comms.get_mut(&handle) {
                comm.batches.pop_front();
            }
        }
        done
    }

    /// Executes an operation if all its ranks have started it.
    fn execute_if_ready(&mut self, communicator: usize, key: OperationKey) {
        let ends = &self.nccl.communicators[communicator];
        if ends.disagreement.is_some() {
            return;
        }
        let Some(calls) = ends.pending_calls.get(&key) else { return };
        let started = |participant: usize| {
            let (batch, index) = calls.get(&participant)?;
            let batch = self.nccl.batches.get(batch).filter(|batch| batch.started)?;
            Some((self.nccl.comms.get(&batch.comm)?.rank, batch.entries.get(*index)?.operation))
        };
        let participants = 0..ends.participants(key);
        let Some(calls) = participants.map(started).collect::<Option<Vec<_>>>() else { return };
        let done = self.execute_operation(communicator, &calls);
        if done.is_ok() && self.checks_order() {
            self.note_operation(communicator, key, &calls);
        }
        if let Err((rank, text)) = done {
            let device = self.nccl.communicators[communicator]
                .members
                .get(&rank)
                .and_then(|comm| self.nccl.comms.get(comm));
            let device = device.map_or(0, |comm| comm.device);
            let text = format!(
                "{} of rank {rank} of NCCL communicator {}: {text}",
                calls[0].1.kind.name(),
                communicator + 1
            );
            self.fail_device(device, Code::ILLEGAL_ADDRESS, &text);
        }
        for (batch, index) in self.nccl.communicators[communicator]
            .pending_calls
            .remove(&key)
            .into_iter()
            .flatten()
            .map(|(_, at)| at)
        {
            let Some(batch) = self.nccl.batches.get_mut(&batch) else { continue };
            if let Some(entry) = batch.entries.get_mut(index) {
                entry.done = true;
            }
            if batch.entries.iter().all(|entry| entry.done) {
                batch.ends = Some(self.simulation.now + batch.duration_ns);
            }
        }
    }

    /// Reads the inputs of all ranks and writes their results.
    ///
    /// On failure, returns the rank whose memory is not accessible and the reason.
    fn execute_operation(
        &mut self,
        communicator: usize,
        calls: &[(usize, Operation)],
    ) -> Result<(), (usize, String)> {
        let size = self.nccl.communicators[communicator].size;
        let Some((_, first)) = calls.first() else { return Ok(()) };
        let bytes = element_bytes(first.element).unwrap_or(0);
        let mut given = Vec::new();
        for (rank, operation) in calls {
            let mut sent = vec![0; operation.bytes(size, bytes).0];
            let gives = match operation.kind {
                OperationKind::Broadcast { root } => root == *rank,
                _ => !sent.is_empty(),
            };
            if gives {
                self.memory.read(operation.send, &mut sent).map_err(|text| (*rank, text))?;
            }
            given.push(sent);
        }
        let reduced = first.kind.reduction().map(|reduction| reduce(first.element, reduction, &given));
        for (rank, operation) in calls {
            let part = operation.count * bytes;
            let got = match operation.kind {
                OperationKind::AllReduce { .. } => reduced.clone().unwrap_or_default(),
                OperationKind::Reduce { root, .. } if root == *rank => reduced.clone().unwrap_or_default(),
                OperationKind::ReduceScatter { .. } => {
                    reduced.as_deref().map_or(Vec::new(), |all| all[rank * part..][..part].to_vec())
                }
                OperationKind::Broadcast { root } => given[root].clone(),
                OperationKind::AllGather => given.concat(),
                // The sender is the first participant.
                OperationKind::Receive { .. } => given[0].clone(),
                OperationKind::Reduce { .. } | OperationKind::Send { .. } => continue,
            };
            if !got.is_empty() {
                self.memory.write(operation.receive, &got).map_err(|text| (*rank, text))?;
            }
        }
        Ok(())
    }
}

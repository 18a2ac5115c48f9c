//! Execution of NCCL operations, from the call to the end of the batch.

use crate::state::{
    Code, Fault, Handle, NodeWork, Outcome,
    driver::Driver,
    nccl::{Batch, BatchId, Entry, Group, Kind, Meeting, Operation, element_bytes, is_reduction, reduce},
    order::VectorClock,
};
use std::collections::BTreeMap;

impl Driver {
    /// Checks the arguments of an operation.
    pub(crate) fn check_operation(
        &mut self,
        comm: Handle,
        stream: Handle,
        operation: &Operation,
    ) -> Outcome<()> {
        let (rank, size, device) = self.comm_place(comm)?;
        self.check_device_lives(device)?;
        let Operation { kind, send, receive, count, element } = *operation;
        let Some(bytes) = element_bytes(element) else {
            return Err(Fault::misuse(Code::NOT_SUPPORTED, format!("elements of type {element}")));
        };
        if kind.reduction().is_some_and(|reduction| !is_reduction(reduction)) {
            return Err(Fault::misuse(Code::NOT_SUPPORTED, format!("the reduction of {operation}")));
        }
        if let Some(peer) = kind.peer().filter(|peer| *peer >= size) {
            return Err(Fault::value(format!("rank {peer} of {size}")));
        }
        let stream = self.stream(stream)?;
        let of = self.device_of_stream(stream);
        if of != device {
            let name = self.handles.name(stream);
            return Err(Fault::value(format!(
                "{name} is of device {of}, the communicator of device {device}"
            )));
        }
        if count == 0 {
            return Ok(());
        }
        let (given, got) = operation.bytes(size, bytes);
        let root = |root| root == rank;
        let sends = match kind {
            Kind::Broadcast { root: of } => root(of),
            _ => given > 0,
        };
        let receives = match kind {
            Kind::Reduce { root: of, .. } => root(of),
            _ => got > 0,
        };
        for (needed, address, bytes) in [(sends, send, given), (receives, receive, got)] {
            if needed {
                self.check_memory(address, bytes)?;
                if self.device_at(address) != Some(device) {
                    return Err(Fault::value(format!("{address:#x} is not memory of device {device}")));
                }
            }
        }
        Ok(())
    }

    /// Enqueues a group of operations in a stream, or adds it to the graph that the stream
    /// captures.
    pub(crate) fn submit_group(&mut self, stream: Handle, group: Group) -> Outcome<()> {
        let stream = self.stream(stream)?;
        self.submit(stream, NodeWork::Collectives(group))
    }

    /// Posts the operations of a group, so that the other ranks can match them, in the order of the
    /// calls.
    pub(in crate::state) fn post(&mut self, stream: Handle, group: &Group) -> BatchId {
        let nccl = &mut self.nccl;
        nccl.begun += 1;
        let id = nccl.begun;
        let Some(comm) = nccl.comms.get_mut(&group.comm) else { return id };
        comm.batches.push_back(id);
        let clique = &mut nccl.cliques[comm.clique];
        let mut entries = Vec::new();
        for (place, operation) in group.operations.iter().enumerate() {
            let next = |counts: &mut BTreeMap<usize, u64>, peer| {
                let count = counts.entry(peer).or_insert(0);
                *count += 1;
                *count - 1
            };
            let (seat, meeting) = match operation.kind {
                Kind::Send { to } => {
                    (0, Meeting::Message { from: comm.rank, to, number: next(&mut comm.sent, to) })
                }
                Kind::Receive { from } => {
                    (1, Meeting::Message { from, to: comm.rank, number: next(&mut comm.received, from) })
                }
                _ => {
                    comm.collectives += 1;
                    (comm.rank, Meeting::Collective(comm.collectives - 1))
                }
            };
            let others = clique.meetings.entry(meeting).or_default();
            let other = others.iter().find_map(|(seat, (batch, place))| {
                let entry = nccl.batches.get(batch)?.entries.get(*place)?;
                let rank = match meeting {
                    Meeting::Collective(_) => *seat,
                    Meeting::Message { from, to, .. } => [from, to][*seat],
                };
                (!entry.operation.agrees_with(operation)).then_some((rank, entry.operation))
            });
            if let (Some((rank, theirs)), None) = (other, &clique.disagreement) {
                let what = match meeting {
                    Meeting::Collective(number) => format!("collective {}", number + 1),
                    Meeting::Message { from, to, number } => {
                        format!("message {} from rank {from} to rank {to}", number + 1)
                    }
                };
                clique.disagreement = Some(format!(
                    "the ranks of NCCL communicator {} disagree about its {what}: rank {rank} calls {theirs}, rank {} \
                     calls {operation}",
                    comm.clique + 1,
                    comm.rank
                ));
            }
            others.insert(seat, (id, place));
            entries.push(Entry { operation: *operation, meeting, done: false });
        }
        nccl.batches.insert(
            id,
            Batch {
                comm: group.comm,
                stream,
                entries,
                started: false,
                takes_ns: group.takes_ns,
                ends: None,
                task: None,
                learnt: VectorClock::default(),
            },
        );
        if let Some(text) = self.nccl.cliques.iter().find_map(|clique| clique.disagreement.clone()) {
            self.tell(text);
        }
        id
    }

    /// Reports a deadlock once.
    pub(in crate::state) fn tell(&mut self, text: String) {
        if !self.nccl.told.contains(&text) {
            eprintln!("emulated NCCL: {text}");
            self.warn(text.clone());
            self.nccl.told.push(text);
        }
    }

    /// Advances a batch at the head of its stream, or at a ready node of the graph there. Returns
    /// whether it is done.
    pub(in crate::state) fn run_batch(&mut self, stream: Handle, node: Option<usize>, id: BatchId) -> bool {
        // The batch is removed if its communicator is aborted.
        let Some(batch) = self.nccl.batches.get(&id) else { return true };
        let handle = batch.comm;
        let Some(comm) = self.nccl.comms.get(&handle) else { return true };
        if comm.batches.front() != Some(&id) {
            return false;
        }
        let clique = comm.clique;
        let waiting: Vec<_> =
            batch.entries.iter().filter(|entry| !entry.done).map(|entry| entry.meeting).collect();
        if !batch.started {
            let task = self.begin_task(stream, node, |driver| driver.batch_label(id));
            if let Some(batch) = self.nccl.batches.get_mut(&id) {
                (batch.started, batch.task) = (true, task);
            }
        }
        for meeting in waiting {
            self.meet(clique, meeting);
        }
        let now = self.engine.now;
        let done = self.nccl.batches.get(&id).is_none_or(|batch| batch.ends.is_some_and(|ends| ends <= now));
        if done {
            if let Some(batch) = self.nccl.batches.remove(&id) {
                self.teach(stream, node, &batch.learnt);
            }
            if let Some(comm) = self.nccl.comms.get_mut(&handle) {
                comm.batches.pop_front();
            }
        }
        done
    }

    /// Executes an operation if all its ranks have started it.
    fn meet(&mut self, clique: usize, meeting: Meeting) {
        let ends = &self.nccl.cliques[clique];
        if ends.disagreement.is_some() {
            return;
        }
        let Some(calls) = ends.meetings.get(&meeting) else { return };
        let started = |seat: usize| {
            let (batch, place) = calls.get(&seat)?;
            let batch = self.nccl.batches.get(batch).filter(|batch| batch.started)?;
            Some((self.nccl.comms.get(&batch.comm)?.rank, batch.entries.get(*place)?.operation))
        };
        let seats = 0..ends.seats(meeting);
        let Some(calls) = seats.map(started).collect::<Option<Vec<_>>>() else { return };
        let done = self.execute_operation(clique, &calls);
        if done.is_ok() && self.checks_order() {
            self.note_operation(clique, meeting, &calls);
        }
        if let Err((rank, text)) = done {
            let device =
                self.nccl.cliques[clique].members.get(&rank).and_then(|comm| self.nccl.comms.get(comm));
            let device = device.map_or(0, |comm| comm.device);
            let text = format!(
                "{} of rank {rank} of NCCL communicator {}: {text}",
                calls[0].1.kind.name(),
                clique + 1
            );
            self.lose_device(device, Code::ILLEGAL_ADDRESS, &text);
        }
        for (batch, place) in
            self.nccl.cliques[clique].meetings.remove(&meeting).into_iter().flatten().map(|(_, at)| at)
        {
            let Some(batch) = self.nccl.batches.get_mut(&batch) else { continue };
            if let Some(entry) = batch.entries.get_mut(place) {
                entry.done = true;
            }
            if batch.entries.iter().all(|entry| entry.done) {
                batch.ends = Some(self.engine.now + batch.takes_ns);
            }
        }
    }

    /// Reads the inputs of all ranks and writes their results.
    ///
    /// On failure, returns the rank whose memory is not accessible and the reason.
    fn execute_operation(
        &mut self,
        clique: usize,
        calls: &[(usize, Operation)],
    ) -> Result<(), (usize, String)> {
        let size = self.nccl.cliques[clique].size;
        let Some((_, first)) = calls.first() else { return Ok(()) };
        let bytes = element_bytes(first.element).unwrap_or(0);
        let mut given = Vec::new();
        for (rank, operation) in calls {
            let mut sent = vec![0; operation.bytes(size, bytes).0];
            let gives = match operation.kind {
                Kind::Broadcast { root } => root == *rank,
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
                Kind::AllReduce { .. } => reduced.clone().unwrap_or_default(),
                Kind::Reduce { root, .. } if root == *rank => reduced.clone().unwrap_or_default(),
                Kind::ReduceScatter { .. } => {
                    reduced.as_deref().map_or(Vec::new(), |all| all[rank * part..][..part].to_vec())
                }
                Kind::Broadcast { root } => given[root].clone(),
                Kind::AllGather => given.concat(),
                // The sender is the first participant.
                Kind::Receive { .. } => given[0].clone(),
                Kind::Reduce { .. } | Kind::Send { .. } => continue,
            };
            if !got.is_empty() {
                self.memory.write(operation.receive, &got).map_err(|text| (*rank, text))?;
            }
        }
        Ok(())
    }
}

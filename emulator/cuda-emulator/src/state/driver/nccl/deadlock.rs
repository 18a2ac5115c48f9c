//! Detection of streams that wait for each other in a cycle, or for ranks that disagree.

use crate::state::{
    Handle, NodeWork, driver::Driver, exec_steps::ExecProgress, nccl::BatchId, work::StreamWork,
};

impl Driver {
    /// Returns the reason why streams of a device, or of any device for `None`, can never progress,
    /// whatever other threads call. Returns `None` if there is none.
    pub(in crate::state) fn find_deadlock(&self, device: Option<i32>) -> Option<String> {
        let from =
            self.streams.iter().filter(|(_, stream)| device.is_none_or(|device| stream.device == device));
        let mut ended = Vec::new();
        from.map(|(handle, _)| *handle).find_map(|stream| self.search(stream, &mut Vec::new(), &mut ended))
    }

    /// Searches the graph of waiting streams depth first.
    fn search(&self, stream: Handle, path: &mut Vec<Handle>, ended: &mut Vec<Handle>) -> Option<String> {
        if ended.contains(&stream) {
            return None;
        }
        if let Some(start) = path.iter().position(|other| *other == stream) {
            let cycle: Vec<_> = path[start..].iter().map(|stream| self.describe_head(*stream)).collect();
            return Some(format!(
                "deadlock: {}, which waits for the first",
                cycle.join(", which waits for ")
            ));
        }
        path.push(stream);
        let batches = self.batches_at_head(stream);
        let communicators = batches.iter().filter_map(|id| {
            let batch = self.nccl.batches.get(id)?;
            self.nccl.communicators.get(self.nccl.comms.get(&batch.comm)?.communicator)
        });
        let found = communicators
            .into_iter()
            .find_map(|communicator| communicator.disagreement.clone())
            .or_else(|| {
                self.waits_for(stream, &batches).into_iter().find_map(|next| self.search(next, path, ended))
            });
        path.pop();
        ended.push(stream);
        found
    }

    /// Describes the work at the head of a stream.
    fn describe_head(&self, stream: Handle) -> String {
        let name = self.handles.name(stream);
        let batch = self.batches_at_head(stream).into_iter().find_map(|id| self.nccl.batches.get(&id));
        let operation = batch.and_then(|batch| batch.entries.iter().find(|entry| !entry.done));
        match batch.zip(operation) {
            Some((batch, entry)) => {
                let comm = self.nccl.comms.get(&batch.comm);
                let caller = comm.map_or(String::new(), |comm| {
                    format!(" by rank {} in NCCL communicator {}", comm.rank, comm.communicator + 1)
                });
                format!("{name} with {}{caller}", entry.operation)
            }
            None => format!("{name} with an event"),
        }
    }

    /// Returns the batches at the head of a stream.
    fn batches_at_head(&self, stream: Handle) -> Vec<BatchId> {
        let Some(stream) = self.streams.get(&stream) else { return Vec::new() };
        match stream.queue.front().map(|head| &head.work) {
            Some(StreamWork::Collectives(id)) => vec![*id],
            Some(StreamWork::Graph { steps, batches, .. }) => {
                let ready = stream.graph.iter().flat_map(ExecProgress::ready);
                ready
                    .filter(|node| matches!(steps.list[*node].work, NodeWork::Collectives(_)))
                    .filter_map(|node| batches.get(&node).copied())
                    .collect()
            }
            _ => Vec::new(),
        }
    }

    /// Returns the streams that a stream's head waits for.
    fn waits_for(&self, stream: Handle, batches: &[BatchId]) -> Vec<Handle> {
        if let Some(StreamWork::Wait { number }) =
            self.streams.get(&stream).and_then(|stream| stream.queue.front()).map(|head| &head.work)
        {
            let records = |work: &StreamWork| match work {
                StreamWork::Record { number: other, .. } => other == number,
                _ => false,
            };
            let holders = self.streams.iter();
            return holders
                .filter(|(_, stream)| stream.queue.iter().any(|queued| records(&queued.work)))
                .map(|(handle, _)| *handle)
                .collect();
        }
        let mut found = Vec::new();
        for id in batches {
            let Some(batch) = self.nccl.batches.get(id) else { continue };
            let Some(comm) = self.nccl.comms.get(&batch.comm) else { continue };
            let stream_of = |id: &BatchId| self.nccl.batches.get(id).map(|batch| batch.stream);
            match comm.batches.front() {
                Some(first) if first != id => found.extend(stream_of(first)),
                _ => {
                    let communicator = &self.nccl.communicators[comm.communicator];
                    let open = batch.entries.iter().filter(|entry| !entry.done);
                    let calls = open
                        .filter_map(|entry| communicator.pending_calls.get(&entry.key))
                        .flat_map(|calls| calls.values());
                    let late = calls.filter(|(other, _)| {
                        self.nccl.batches.get(other).is_some_and(|batch| !batch.started)
                    });
                    found.extend(late.filter_map(|(other, _)| stream_of(other)));
                }
            }
        }
        found
    }
}

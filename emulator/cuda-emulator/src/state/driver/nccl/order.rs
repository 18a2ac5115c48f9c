//! Memory accesses and ordering of NCCL operations, for the order check. A batch holds the
//! operations that a rank enqueues together.

use crate::state::{
    driver::Driver,
    nccl::{BatchId, Operation, OperationKey, OperationKind, element_bytes},
    order::VectorClock,
};
use ptx_emulator::AccessKind;
use std::collections::BTreeSet;

impl Driver {
    /// Returns a description of a batch, such as `ncclAllReduce by rank 1 of NCCL communicator 2`.
    /// It is empty for a batch that is done.
    pub(super) fn batch_label(&self, id: BatchId) -> String {
        let Some(batch) = self.nccl.batches.get(&id) else { return String::new() };
        let names: BTreeSet<_> = batch.entries.iter().map(|entry| entry.operation.kind.name()).collect();
        let names: Vec<_> = names.into_iter().collect();
        let caller = self.nccl.comms.get(&batch.comm).map_or(String::new(), |comm| {
            format!(" by rank {} of NCCL communicator {}", comm.rank, comm.communicator + 1)
        });
        names.join(" and ") + &caller
    }

    /// Records the memory accesses of an operation that was executed, and orders the ranks that
    /// received data after those that sent it. `communicator` is the index of the communicator, and
    /// `calls` holds the rank and the call of each participant.
    pub(super) fn note_operation(
        &mut self,
        communicator: usize,
        key: OperationKey,
        calls: &[(usize, Operation)],
    ) {
        let size = self.nccl.communicators[communicator].size;
        let participants = self.nccl.communicators[communicator].pending_calls.get(&key);
        let batches: Vec<BatchId> = participants
            .into_iter()
            .flat_map(|participants| participants.values())
            .map(|(id, _)| *id)
            .collect();
        let task = |id: &BatchId| self.nccl.batches.get(id).and_then(|batch| batch.task.clone());
        let tasks: Vec<_> = batches.iter().map(task).collect();
        // Predecessors of the ranks that send data.
        let mut given = VectorClock::default();
        for ((rank, operation), task) in calls.iter().zip(&tasks) {
            let (sent, got) = operation.bytes(size, element_bytes(operation.element).unwrap_or(0));
            let (gives, gets) = match operation.kind {
                OperationKind::Broadcast { root } => (root == *rank, true),
                OperationKind::Reduce { root, .. } => (true, root == *rank),
                OperationKind::Send { .. } => (true, false),
                OperationKind::Receive { .. } => (false, true),
                OperationKind::AllReduce { .. }
                | OperationKind::AllGather
                | OperationKind::ReduceScatter { .. } => (true, true),
            };
            if gives {
                self.note_access(task.as_ref(), AccessKind::Read, operation.send, sent as u64);
                if let Some(task) = task {
                    given.join(&task.clock);
                }
            }
            if gets {
                self.note_access(task.as_ref(), AccessKind::Write, operation.receive, got as u64);
            }
        }
        for ((rank, operation), id) in calls.iter().zip(&batches) {
            let learns = match operation.kind {
                OperationKind::Reduce { root, .. } => root == *rank,
                OperationKind::Send { .. } => false,
                _ => true,
            };
            if let Some(batch) = self.nccl.batches.get_mut(id).filter(|_| learns) {
                batch.received_clock.join(&given);
            }
        }
    }
}

//! State shared by the ranks of a communicator. A batch holds the operations that a rank enqueues
//! together.

use super::{BatchId, OperationKey};
use crate::{host::HandleSlot, state::Handle};
use std::collections::BTreeMap;

/// Communicator of NCCL: the state that its ranks share.
#[derive(Default)]
pub(in crate::state) struct Communicator {
    /// Unique id, or `None` for a communicator that was created by a split.
    pub(in crate::state) id: Option<u64>,
    /// Number of ranks.
    pub(in crate::state) size: usize,
    /// Handle of each rank that has joined, by rank. The handle of a destroyed rank is 0.
    pub(in crate::state) members: BTreeMap<usize, Handle>,
    /// Calls of operations that are not done: for each operation and each participant that has
    /// called it, the batch and the index of the operation in the batch. Participants are numbered
    /// as in `participants`.
    pub(in crate::state) pending_calls: BTreeMap<OperationKey, BTreeMap<usize, (BatchId, usize)>>,
    /// Calls of `ncclCommSplit`: for each split, in order, the call of each rank that has called
    /// it, by rank.
    pub(in crate::state) splits: Vec<BTreeMap<usize, SplitCall>>,
    /// Description of a disagreement of the ranks, after which their operations never complete.
    /// `None` without one.
    pub(in crate::state) disagreement: Option<String>,
}

/// Call of `ncclCommSplit` by one rank.
pub(in crate::state) struct SplitCall {
    /// Number of the new communicator that the rank joins. It is negative if the rank joins none.
    pub(in crate::state) color: i32,
    /// Number by which the ranks of the new communicator are ordered.
    pub(in crate::state) key: i32,
    /// Pointer to which the handle of the rank in the new communicator is written.
    pub(in crate::state) slot: HandleSlot,
    /// Device of the rank.
    pub(in crate::state) device: i32,
    /// Whether the new communicator is blocking: the calls that create, split or finalize it return
    /// only when they are complete.
    pub(in crate::state) blocking: bool,
}

impl Communicator {
    /// Returns whether all ranks have joined the communicator.
    pub(in crate::state) fn is_complete(&self) -> bool {
        self.members.len() == self.size
    }

    /// Returns the number of participants of an operation: all ranks for a collective, numbered by
    /// rank, or the sender (0) and the receiver (1) of a message.
    pub(in crate::state) fn participants(&self, key: OperationKey) -> usize {
        match key {
            OperationKey::Collective(_) => self.size,
            OperationKey::Message { .. } => 2,
        }
    }
}

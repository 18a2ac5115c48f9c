//! State shared by the ranks of a communicator.

use super::{BatchId, OperationKey};
use crate::{host::HandleSlot, state::Handle};
use std::collections::BTreeMap;

/// A communicator, shared by its ranks.
#[derive(Default)]
pub(in crate::state) struct Clique {
    /// Unique id, or `None` for a communicator that was created by a split.
    pub(in crate::state) id: Option<u64>,
    pub(in crate::state) size: usize,
    /// Handles of the ranks. A destroyed rank stays as null.
    pub(in crate::state) members: BTreeMap<usize, Handle>,
    /// For operations that are not done, the batch of each participant that has called and the
    /// operation's index in the batch.
    pub(in crate::state) pending_calls: BTreeMap<OperationKey, BTreeMap<usize, (BatchId, usize)>>,
    /// Calls of each split, by rank.
    pub(in crate::state) splits: Vec<BTreeMap<usize, SplitCall>>,
    /// Description of a disagreement of the ranks, after which their operations never complete.
    pub(in crate::state) disagreement: Option<String>,
}

/// A rank's call of a split.
pub(in crate::state) struct SplitCall {
    pub(in crate::state) color: i32,
    pub(in crate::state) key: i32,
    pub(in crate::state) slot: HandleSlot,
    pub(in crate::state) device: i32,
    pub(in crate::state) blocking: bool,
}

impl Clique {
    pub(in crate::state) fn is_complete(&self) -> bool {
        self.members.len() == self.size
    }

    /// Returns the number of participants: all ranks for a collective, numbered by rank, or the
    /// sender (0) and the receiver (1) of a message.
    pub(in crate::state) fn participants(&self, key: OperationKey) -> usize {
        match key {
            OperationKey::Collective(_) => self.size,
            OperationKey::Message { .. } => 2,
        }
    }
}

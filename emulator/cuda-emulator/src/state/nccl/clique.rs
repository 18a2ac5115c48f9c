//! What all ends of a communicator share.

use super::{BatchId, Meeting};
use crate::{host::HandleSlot, state::Handle};
use std::collections::BTreeMap;

/// All ends of a communicator.
#[derive(Default)]
pub(in crate::state) struct Clique {
    /// What its ranks have in common before they have met; none for that of a split.
    pub(in crate::state) id: Option<u64>,
    pub(in crate::state) size: usize,
    /// The ends by their ranks; those that have gone stay as null.
    pub(in crate::state) members: BTreeMap<usize, Handle>,
    /// Of operations that are not done, the batch and the place in it of each of those who meet, by their seats.
    pub(in crate::state) meetings: BTreeMap<Meeting, BTreeMap<usize, (BatchId, usize)>>,
    /// For each split who has called it.
    pub(in crate::state) splits: Vec<BTreeMap<usize, SplitCall>>,
    /// Ranks that disagree never get on.
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

    /// How many a meeting needs: all ranks, each with its number for a seat, or a sender in seat 0 and a receiver in seat 1.
    pub(in crate::state) fn seats(&self, meeting: Meeting) -> usize {
        match meeting {
            Meeting::Collective(_) => self.size,
            Meeting::Message { .. } => 2,
        }
    }
}

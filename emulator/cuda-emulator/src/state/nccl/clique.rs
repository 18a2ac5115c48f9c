//! What all ends of a communicator share.

use super::{BatchId, Meeting};
use crate::{host::HandleSlot, state::Handle};
use std::collections::BTreeMap;

/// All ends of a communicator.
#[derive(Default)]
pub(super) struct Clique {
    /// What its ranks have in common before they have met; none for that of a split.
    pub(super) id: Option<u64>,
    pub(super) size: usize,
    /// The ends by their ranks; those that have gone stay as null.
    pub(super) members: BTreeMap<usize, Handle>,
    /// Of operations that are not done, the batch and the place in it of each of those who meet, by their seats.
    pub(super) meetings: BTreeMap<Meeting, BTreeMap<usize, (BatchId, usize)>>,
    /// For each split who has called it.
    pub(super) splits: Vec<BTreeMap<usize, SplitCall>>,
    /// Ranks that disagree never get on.
    pub(super) disagreement: Option<String>,
}

/// A rank's call of a split.
pub(super) struct SplitCall {
    pub(super) color: i32,
    pub(super) key: i32,
    pub(super) slot: HandleSlot,
    pub(super) device: i32,
    pub(super) blocking: bool,
}

impl Clique {
    pub(super) fn is_complete(&self) -> bool {
        self.members.len() == self.size
    }

    /// How many a meeting needs: all ranks, each with its number for a seat, or a sender in seat 0 and a receiver in seat 1.
    pub(super) fn seats(&self, meeting: Meeting) -> usize {
        match meeting {
            Meeting::Collective(_) => self.size,
            Meeting::Message { .. } => 2,
        }
    }
}

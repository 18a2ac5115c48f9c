//! Values that ranks exchange in the store at rank 0. In a *gather*, each of the given ranks puts a
//! value under the same key, and gets the values of all.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::wire::{Action, StoreReply, StoreRequest};

/// Maximum number of keys whose values were put without waiting and that no rank has gathered. Most
/// belong to slow operations that completed, whose keys are never gathered.
const MAX_UNREAD: usize = 1024;

/// State of all gathers at the store, by key.
#[derive(Debug, Default)]
pub(super) struct Gathers {
    slots: HashMap<String, Slots>,
    /// Keys whose first value was put without waiting. The oldest is removed first.
    unread: VecDeque<String>,
}

/// Values of the members of a gather.
#[derive(Debug)]
struct Slots {
    values: Vec<Slot>,
    /// Members that have received all values.
    served: BTreeSet<usize>,
}

/// Value of one member.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Absent,
    Put(Vec<u8>),
    /// The member has timed out.
    Withdrawn,
}

impl Gathers {
    /// Executes a request of one rank and returns the reply at once, without waiting for values
    /// that are missing. `departed` has the ranks of the world whose connections have ended.
    pub(super) fn answer(&mut self, request: &StoreRequest, departed: &BTreeSet<usize>) -> StoreReply {
        let StoreRequest { action, key, place, members, value } = request;
        let count = members.len();
        if *action == Action::Put && !self.slots.contains_key(key) {
            self.unread.push_back(key.clone());
            if self.unread.len() > MAX_UNREAD {
                self.unread.pop_front().map(|oldest| self.slots.remove(&oldest));
            }
        }
        let slots = self
            .slots
            .entry(key.clone())
            .or_insert_with(|| Slots { values: vec![Slot::Absent; count], served: BTreeSet::new() });
        if slots.values.len() != count {
            return StoreReply::Missing(members.clone());
        }
        if *action != Action::Withdraw {
            slots.values[*place] = Slot::Put(value.clone());
        }
        let reply = slots.reply(members, departed);
        let over = match (&reply, action) {
            (StoreReply::All(_), Action::Gather | Action::Withdraw) => {
                slots.served.insert(*place);
                slots.served.len() == count
            }
            // Later ranks are refused at once. The last one removes the key, so that it can be used
            // again.
            (StoreReply::Withdrawn(_), _) | (_, Action::Withdraw) => {
                slots.values[*place] = Slot::Withdrawn;
                slots.values.iter().all(|slot| *slot == Slot::Withdrawn)
            }
            _ => false,
        };
        if over {
            self.slots.remove(key);
        }
        reply
    }
}

impl Slots {
    fn reply(&self, members: &[usize], departed: &BTreeSet<usize>) -> StoreReply {
        let those = |like: &Slot| -> Vec<usize> {
            let alike = members.iter().zip(&self.values).filter(|(_, slot)| *slot == like);
            alike.map(|(&rank, _)| rank).collect()
        };
        let missing = those(&Slot::Absent);
        if let Some(&rank) = missing.iter().find(|rank| departed.contains(rank)) {
            return StoreReply::Departed(rank);
        }
        if !missing.is_empty() {
            return StoreReply::Missing(missing);
        }
        let withdrawn = those(&Slot::Withdrawn);
        if !withdrawn.is_empty() {
            return StoreReply::Withdrawn(withdrawn);
        }
        let value = |slot: &Slot| if let Slot::Put(value) = slot { Some(value.clone()) } else { None };
        StoreReply::All(self.values.iter().filter_map(value).collect())
    }
}

//! The values that ranks put into the store at rank 0, and gather there.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::wire::{Act, Reply, Request};

/// Keys with values that were put and that no rank has gathered yet. Most are of slow operations that were complete in
/// the end, whose keys are never gathered.
const MAX_UNREAD: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Gathers {
    slots: HashMap<String, Slots>,
    /// Keys that began with a value that was put without waiting; the oldest is removed first.
    unread: VecDeque<String>,
}

/// The values of the members of a gather.
#[derive(Debug)]
struct Slots {
    values: Vec<Slot>,
    /// The members that have received all values.
    served: BTreeSet<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Absent,
    Left(Vec<u8>),
    /// Its rank has timed out.
    Withdrawn,
}

impl Gathers {
    /// Carries a request out; `departed` are the ranks whose connections have ended.
    pub(super) fn answer(&mut self, request: &Request, departed: &BTreeSet<usize>) -> Reply {
        let Request { act, key, place, members, value } = request;
        let count = members.len();
        if *act == Act::Put && !self.slots.contains_key(key) {
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
            return Reply::Missing(members.clone());
        }
        if *act != Act::Withdraw {
            slots.values[*place] = Slot::Left(value.clone());
        }
        let reply = slots.reply(members, departed);
        let over = match (&reply, act) {
            (Reply::All(_), Act::Gather | Act::Withdraw) => {
                slots.served.insert(*place);
                slots.served.len() == count
            }
            // A rank that is later still is refused at once; the last one removes the key, for another attempt.
            (Reply::Withdrawn(_), _) | (_, Act::Withdraw) => {
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
    fn reply(&self, members: &[usize], departed: &BTreeSet<usize>) -> Reply {
        let those = |like: &Slot| -> Vec<usize> {
            let alike = members.iter().zip(&self.values).filter(|(_, slot)| *slot == like);
            alike.map(|(&rank, _)| rank).collect()
        };
        let missing = those(&Slot::Absent);
        if let Some(&rank) = missing.iter().find(|rank| departed.contains(rank)) {
            return Reply::Departed(rank);
        }
        if !missing.is_empty() {
            return Reply::Missing(missing);
        }
        let withdrawn = those(&Slot::Withdrawn);
        if !withdrawn.is_empty() {
            return Reply::Withdrawn(withdrawn);
        }
        let left = |slot: &Slot| if let Slot::Left(value) = slot { Some(value.clone()) } else { None };
        Reply::All(self.values.iter().filter_map(left).collect())
    }
}

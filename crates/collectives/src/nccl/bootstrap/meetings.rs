//! What ranks leave for each other at rank 0.

use std::collections::{BTreeSet, HashMap, VecDeque};

use super::wire::{Act, Reply, Request};

/// At how many meetings there may be values of ranks that wait for nobody. Most are of slow operations that were done
/// in the end, which nobody asks about.
const UNASKED: usize = 1024;

#[derive(Debug, Default)]
pub(super) struct Meetings {
    slots: HashMap<String, Slots>,
    /// Those that began with a value that nobody waited at; the oldest goes first.
    unasked: VecDeque<String>,
}

/// What the members of a meeting have left.
#[derive(Debug)]
struct Slots {
    values: Vec<Slot>,
    /// Who has taken all values.
    served: BTreeSet<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Slot {
    Absent,
    Left(Vec<u8>),
    /// Its rank waited in vain.
    Withdrawn,
}

impl Meetings {
    /// Carries a request out; `departed` are the ranks that were there once and are gone.
    pub(super) fn answer(&mut self, request: &Request, departed: &BTreeSet<usize>) -> Reply {
        let Request { act, key, place, members, value } = request;
        let count = members.len();
        if *act == Act::Leave && !self.slots.contains_key(key) {
            self.unasked.push_back(key.clone());
            if self.unasked.len() > UNASKED {
                self.unasked.pop_front().map(|oldest| self.slots.remove(&oldest));
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
            (Reply::All(_), Act::Ask | Act::Withdraw) => {
                slots.served.insert(*place);
                slots.served.len() == count
            }
            // Who comes later learns at once that it is in vain; the last one clears the place for another try.
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

//! What members tell each other when something takes too long: who is alive, and that the group has failed.
//!
//! So the ranks that are really gone are named where an operation stops half-way, and a failure is the same for all, also
//! for those who come late: they look for news before they take the others' old headers for new ones. Apart from that, nobody
//! listens before an operation has lasted a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::engine::Engine;
use super::header::Header;
use super::library::{self, Failure};
use super::tags;
use super::transfer::Transfer;
use crate::{Call, Error, Operation};

/// How long an operation lasts before its rank listens for news.
pub(super) const LISTEN_AFTER: Duration = Duration::from_millis(10);

/// How often it does then.
pub(super) const LISTEN_EVERY: Duration = Duration::from_millis(2);

/// How many groups it listens to then: a program may have thousands.
pub(super) const GROUPS_AT_A_TIME: usize = 32;

/// A piece of news about one group.
#[derive(Debug, Clone, PartialEq)]
enum Item {
    /// The sender wants to know who is there.
    AnyoneThere,
    /// The sender is.
    Here,
    /// The sender has no more use for the group, and sends nothing more in it.
    Goodbye,
    /// The group is of no more use.
    Failed(Error),
}

/// The news of all groups.
#[derive(Debug, Default)]
pub(super) struct News {
    listened: Option<Instant>,
    /// The group to begin with.
    turn: usize,
    /// News on their way: the group, the member and the words.
    arriving: Vec<(usize, usize, Transfer)>,
    /// When a member of a group was heard of.
    heard: HashMap<(usize, usize), Instant>,
}

impl News {
    pub(super) fn forget(&mut self, group: usize) {
        self.heard.retain(|(other, _), _| *other != group);
    }
}

impl Item {
    fn encode(&self, size: usize) -> Vec<u64> {
        let failed = |kind: u64, detail: u64, list: Vec<u64>, call: &Call| {
            let header = Header { sequence: 0, call: call.clone(), fault: None };
            [vec![kind, detail, list.len() as u64], list, header.encode(size)].concat()
        };
        match self {
            Self::AnyoneThere => vec![0],
            Self::Failed(Error::TimedOut { missing, call, waited }) => {
                failed(2, waited.as_nanos() as u64, missing.iter().map(|&rank| rank as u64).collect(), call)
            }
            Self::Failed(Error::Library { rank, call, message, .. }) => {
                failed(3, *rank as u64, message.bytes().map(u64::from).collect(), call)
            }
            Self::Goodbye => vec![2],
            // Nothing else lets a group fail.
            Self::Here | Self::Failed(_) => vec![1],
        }
    }

    fn decode(words: &[u64]) -> Option<Self> {
        let [kind, detail, count, ref rest @ ..] = *words else {
            return match *words {
                [0] => Some(Self::AnyoneThere),
                [1] => Some(Self::Here),
                [2] => Some(Self::Goodbye),
                _ => None,
            };
        };
        let (list, header) = rest.split_at_checked(count as usize)?;
        let call = Header::decode(header)?.call;
        Some(Self::Failed(match kind {
            2 => Error::TimedOut {
                missing: list.iter().map(|&rank| rank as usize).collect(),
                call,
                waited: Duration::from_nanos(detail),
            },
            3 => {
                let bytes = list.iter().map(|&byte| byte as u8).collect();
                let message = String::from_utf8(bytes).ok()?;
                Error::Library { backend: library::NAME, rank: detail as usize, call, message }
            }
            _ => return None,
        }))
    }
}

impl Engine {
    /// Reads what the members of all groups tell, unless that was done a moment ago.
    pub(super) fn listen(&mut self, now: Instant) {
        let recent = |listened: Instant| now.saturating_duration_since(listened) < LISTEN_EVERY;
        if self.news.listened.is_some_and(recent) {
            return;
        }
        self.news.listened = Some(now);
        let mut turn = self.groups.from(self.news.turn, GROUPS_AT_A_TIME);
        if turn.len() < GROUPS_AT_A_TIME {
            let rest = (GROUPS_AT_A_TIME - turn.len()).min(self.groups.len() - turn.len());
            turn.extend(self.groups.from(0, rest));
        }
        self.news.turn = turn.last().map_or(0, |last| last + 1);
        for group in turn {
            if let Err(failure) = self.listen_to(group) {
                self.library_failed_in_news(group, failure);
            }
        }
        self.take_in_arrived(now);
        self.take_leave();
    }

    /// Reads what the members of one group have told so far; whether none of it is still on its way.
    pub(super) fn hear(&mut self, group: usize) -> bool {
        if let Err(failure) = self.listen_to(group) {
            self.library_failed_in_news(group, failure);
        }
        if !self.news.arriving.is_empty() {
            self.take_in_arrived(Instant::now());
        }
        self.news.arriving.iter().all(|(other, ..)| *other != group)
    }

    fn take_in_arrived(&mut self, now: Instant) {
        let mut arriving = std::mem::take(&mut self.news.arriving);
        arriving.retain_mut(|(group, member, transfer)| {
            match transfer.test() {
                Ok(false) => return true,
                Ok(true) => {
                    if let Some(item) = transfer.words().and_then(Item::decode) {
                        self.take_in(*group, *member, item, now);
                    }
                }
                Err(failure) => self.library_failed_in_news(*group, failure),
            }
            false
        });
        self.news.arriving = arriving;
    }

    fn listen_to(&mut self, group: usize) -> Result<(), Failure> {
        let comm = self.groups[group].comm;
        while let Some((member, words)) = library::probe(comm, tags::NEWS)? {
            let transfer = Transfer::receive_words(comm, member, tags::NEWS, words)?;
            self.news.arriving.push((group, member, transfer));
        }
        Ok(())
    }

    fn take_in(&mut self, group: usize, member: usize, item: Item, now: Instant) {
        self.news.heard.insert((group, member), now);
        match item {
            Item::AnyoneThere => self.tell(group, &[member], &Item::Here),
            Item::Here => {}
            Item::Goodbye => {
                self.groups[group].gone.insert(member);
            }
            // Its sender has told everyone.
            Item::Failed(error) => {
                self.groups[group].failure.get_or_insert(error);
            }
        }
    }

    /// Asks all members of a group whether they are there.
    pub(super) fn ask_who_is_there(&mut self, group: usize) {
        let others: Vec<usize> = self.groups[group].others().collect();
        self.tell(group, &others, &Item::AnyoneThere);
    }

    /// Those of some members of a group of whom nothing was heard since then; all of them, if all were heard. A member
    /// that is there but late may only be waiting for one that is gone.
    pub(super) fn silent_since(&self, group: usize, then: Instant, suspects: Vec<usize>) -> Vec<usize> {
        let gone = &self.groups[group].gone;
        let heard = |member: &usize| {
            gone.contains(member) || self.news.heard.get(&(group, *member)).is_some_and(|at| *at >= then)
        };
        let (alive, silent): (Vec<usize>, Vec<usize>) = suspects.into_iter().partition(heard);
        if silent.is_empty() { alive } else { silent }
    }

    /// Lets a group fail for good, unless it has, and tells its members; why it failed.
    pub(super) fn fail_group(&mut self, group: usize, error: Error) -> Error {
        if let Some(failure) = &self.groups[group].failure {
            return failure.clone();
        }
        self.groups[group].failure = Some(error.clone());
        let others: Vec<usize> = self.groups[group].others().collect();
        self.tell(group, &others, &Item::Failed(error.clone()));
        error
    }

    /// Tells the members of a group that this rank needs it no more.
    pub(super) fn say_goodbye(&mut self, group: usize) {
        let others: Vec<usize> = self.groups[group].others().collect();
        self.tell(group, &others, &Item::Goodbye);
    }

    fn tell(&mut self, group: usize, members: &[usize], item: &Item) {
        let state = &self.groups[group];
        // Nothing comes after a goodbye, and who has left does not listen.
        if state.said_goodbye && *item != Item::Goodbye {
            return;
        }
        let members: Vec<usize> = members
            .iter()
            .copied()
            .filter(|member| *item == Item::Goodbye || !state.gone.contains(member))
            .collect();
        let words: Arc<[u64]> = item.encode(self.groups[group].members.len()).into();
        let call = Call { operation: Operation::Barrier, element: None };
        for member in members {
            // A member that cannot be told finds out by itself.
            let _ = self.post(group, &call, member, tags::NEWS, &words);
        }
    }

    pub(super) fn library_failed_in_news(&mut self, group: usize, failure: Failure) {
        let call = Call { operation: Operation::Barrier, element: None };
        let rank = self.groups[group].world_rank();
        self.fail_group(group, failure.error(rank, &call));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_arrive_as_they_were_sent() {
        let call = Call { operation: Operation::Group { ranks: vec![3, 1] }, element: None };
        let waited = Duration::from_nanos(1_234_567);
        let late = Error::TimedOut { missing: vec![3, 0], call: call.clone(), waited };
        let broken =
            Error::Library { backend: library::NAME, rank: 2, call, message: "no route, für heute".into() };
        for item in [Item::AnyoneThere, Item::Here, Item::Goodbye, Item::Failed(late), Item::Failed(broken)] {
            let words = item.encode(4);
            assert_eq!(Item::decode(&words), Some(item));
        }
        assert_eq!(Item::decode(&[2, 0, 5, 1]), None);
    }
}

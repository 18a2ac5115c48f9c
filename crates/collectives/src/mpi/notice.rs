//! Notices: messages between the members of a group that belong to no operation. A member sends
//! them when an operation takes too long, to ask whether another member is alive, or to tell that
//! it leaves the group or that the group has failed.

use std::time::Duration;

use super::header::Header;
use super::library;
use crate::{Call, Error};

/// Message about a group, from one member to another.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Notice {
    /// Request to answer with `Alive`.
    AliveQuery,
    /// The sender is alive.
    Alive,
    /// The sender has dropped its last handle of the group. It is the sender's last message in the
    /// group.
    Leaving,
    /// The group has failed with this error and cannot be used any more.
    Failed(Error),
}

impl Notice {
    /// Encodes the notice as 64-bit words, the content of the message. `size` is the number of
    /// ranks of the group.
    pub(super) fn encode(&self, size: usize) -> Vec<u64> {
        let failed = |kind: u64, detail: u64, list: Vec<u64>, call: &Call| {
            let header = Header { sequence: 0, call: call.clone(), fault: None };
            [vec![kind, detail, list.len() as u64], list, header.encode(size)].concat()
        };
        match self {
            Self::AliveQuery => vec![0],
            Self::Failed(Error::TimedOut { missing, call, waited }) => {
                failed(2, waited.as_nanos() as u64, missing.iter().map(|&rank| rank as u64).collect(), call)
            }
            Self::Failed(Error::Library { rank, call, message, .. }) => {
                failed(3, *rank as u64, message.bytes().map(u64::from).collect(), call)
            }
            Self::Leaving => vec![2],
            // Groups fail only with the two errors above.
            Self::Alive | Self::Failed(_) => vec![1],
        }
    }

    /// Decodes a message of [`encode`](Self::encode). `None` if it is malformed.
    pub(super) fn decode(words: &[u64]) -> Option<Self> {
        let [kind, detail, count, ref rest @ ..] = *words else {
            return match *words {
                [0] => Some(Self::AliveQuery),
                [1] => Some(Self::Alive),
                [2] => Some(Self::Leaving),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;

    #[test]
    fn notices_survive_a_round_trip() {
        let call = Call { operation: Operation::Group { ranks: vec![3, 1] }, element: None };
        let waited = Duration::from_nanos(1_234_567);
        let late = Error::TimedOut { missing: vec![3, 0], call: call.clone(), waited };
        let broken =
            Error::Library { backend: library::NAME, rank: 2, call, message: "no route, für heute".into() };
        for notice in
            [Notice::AliveQuery, Notice::Alive, Notice::Leaving, Notice::Failed(late), Notice::Failed(broken)]
        {
            let words = notice.encode(4);
            assert_eq!(Notice::decode(&words), Some(notice));
        }
        assert_eq!(Notice::decode(&[2, 0, 5, 1]), None);
    }
}

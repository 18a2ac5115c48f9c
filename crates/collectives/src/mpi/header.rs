//! Headers, and their comparison. A *header* is a message of 64-bit words that describes a rank's
//! call. The ranks of an operation exchange headers before its data. A *fault* is an invalid
//! argument of a call, which all ranks report as the same error.

use super::prepared_call::Fault;
use crate::lengths::LengthMismatch;
use crate::{Call, ElementType, Error, Operation, ReduceOp};

/// Number of words of a header without lists. The counts of an all-to-all-v, or the ranks of a new
/// group, follow.
pub(super) const FIXED_WORDS: usize = 9;

/// Buffers of a [`Fault::WrongLength`]. Their indices are their codes.
const BUFFERS: [&str; 4] = ["send buffer", "receive buffer", "send counts", "receive counts"];

const ELEMENTS: [ElementType; 7] = [
    ElementType::F32,
    ElementType::F64,
    ElementType::I32,
    ElementType::I64,
    ElementType::U8,
    ElementType::F16,
    ElementType::Bf16,
];

const REDUCTIONS: [ReduceOp; 3] = [ReduceOp::Sum, ReduceOp::Max, ReduceOp::Min];

/// Description of one rank's call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    /// Sequence number among the collectives of the group, from 0. Zero for a message.
    pub(super) sequence: u64,
    /// Call with its arguments.
    pub(super) call: Call,
    /// Invalid argument of the call. `None` for a valid call.
    pub(super) fault: Option<Fault>,
}

impl Header {
    /// Returns the maximum number of words of a header in a group of `size` ranks.
    pub(super) fn capacity(size: usize) -> usize {
        FIXED_WORDS + 2 * size
    }

    /// Encodes the header for the members of a group of `size` ranks. Lists of counts that are too
    /// long, which is a fault, are truncated.
    pub(super) fn encode(&self, size: usize) -> Vec<u64> {
        let mut words = Vec::with_capacity(FIXED_WORDS);
        self.encode_to(&mut words, size);
        words
    }

    /// Appends the header, encoded as by [`encode`](Self::encode), to `words`.
    pub(super) fn encode_to(&self, words: &mut Vec<u64>, size: usize) {
        let mut counts: [&[usize]; 2] = [&[], &[]];
        let (code, fields): (u64, [usize; 3]) = match self.call.operation {
            Operation::Barrier => (0, [0; 3]),
            Operation::Split => (1, [0; 3]),
            Operation::AllReduce { count, op } => (2, [count, op as usize, 0]),
            Operation::Broadcast { count, root } => (3, [count, root, 0]),
            Operation::AllGather { count } => (4, [count, 0, 0]),
            Operation::ReduceScatter { count, op } => (5, [count, op as usize, 0]),
            Operation::AllToAllV { ref send_counts, ref receive_counts } => {
                counts = [send_counts, receive_counts].map(|list| &list[..list.len().min(size)]);
                (6, [counts[0].len(), counts[1].len(), 0])
            }
            Operation::Send { count, to, tag } => (7, [count, to, tag as usize]),
            Operation::Receive { count, from, tag } => (8, [count, from, tag as usize]),
            Operation::Group { ref ranks } => {
                counts[0] = &ranks[..ranks.len().min(size)];
                (9, [counts[0].len(), 0, 0])
            }
            // A fault: redistributions are all-to-all-vs.
            Operation::Redistribution { .. } => (10, [0; 3]),
        };
        let element = self.call.element.map_or(0, |element| 1 + code_of(&ELEMENTS, &element));
        let (fault, details) = match self.fault {
            None => (0, [0; 2]),
            Some(Fault::NoSuchRank { rank }) => (1, [rank, 0]),
            Some(Fault::Unsupported) => (2, [0; 2]),
            Some(Fault::TooLong) => (3, [0; 2]),
            Some(Fault::WrongLength(LengthMismatch { buffer, expected, actual })) => {
                (4 + code_of(&BUFFERS, &buffer), [expected, actual])
            }
        };
        words.extend([self.sequence, code, element, fault]);
        words
            .extend(fields.iter().chain(&details).chain(counts[0]).chain(counts[1]).map(|&word| word as u64));
    }

    /// Decodes an [encoded](Self::encode) header, whose message may continue after it. `None` for a
    /// header of another version of this crate.
    pub(super) fn decode(words: &[u64]) -> Option<Self> {
        let (&[sequence, code, element, fault], rest) = words.split_first_chunk::<4>()?;
        let (fields, counts) = rest.split_first_chunk::<5>()?;
        let [count, argument, tag, expected, actual] = fields.map(|word| word as usize);
        let list = |from: usize, len: usize| -> Option<Vec<usize>> {
            Some(counts.get(from..)?.get(..len)?.iter().map(|&word| word as usize).collect())
        };
        let reduction = || REDUCTIONS.get(argument).copied();
        let operation = match code {
            0 => Operation::Barrier,
            1 => Operation::Split,
            2 => Operation::AllReduce { count, op: reduction()? },
            3 => Operation::Broadcast { count, root: argument },
            4 => Operation::AllGather { count },
            5 => Operation::ReduceScatter { count, op: reduction()? },
            6 => {
                Operation::AllToAllV { send_counts: list(0, count)?, receive_counts: list(count, argument)? }
            }
            7 => Operation::Send { count, to: argument, tag: u32::try_from(tag).ok()? },
            8 => Operation::Receive { count, from: argument, tag: u32::try_from(tag).ok()? },
            9 => Operation::Group { ranks: list(0, count)? },
            _ => return None,
        };
        let element = match element {
            0 => None,
            code => Some(*ELEMENTS.get(code as usize - 1)?),
        };
        let fault = match fault {
            0 => None,
            1 => Some(Fault::NoSuchRank { rank: expected }),
            2 => Some(Fault::Unsupported),
            3 => Some(Fault::TooLong),
            code => {
                let buffer = BUFFERS.get(code as usize - 4)?;
                Some(Fault::WrongLength(LengthMismatch { buffer, expected, actual }))
            }
        };
        Some(Self { sequence, call: Call { operation, element }, fault })
    }
}

fn code_of<T: PartialEq>(list: &[T], element: &T) -> u64 {
    list.iter().position(|other| other == element).unwrap_or(list.len()) as u64
}

/// Returns the error of one operation's calls, or `None` if they agree. `headers` has the number in
/// the group and the header of every participating member, `members` the rank in the world of each
/// member of the group. All members compute the same error from the same headers.
pub(super) fn first_error(headers: &[(usize, Header)], members: &[usize]) -> Option<Error> {
    let faulty =
        headers.iter().find_map(|(place, header)| Some((place, &header.call, header.fault.as_ref()?)));
    if let Some((&place, call, fault)) = faulty {
        return Some(fault.error(members[place], call, members.len()));
    }
    let ((first, first_header), others) = headers.split_first()?;
    let conflict = |at: usize, call: &Call, (other, header): &(usize, Header)| {
        (!call.agrees_with(at, &header.call, *other)).then(|| Error::Mismatch {
            first: members[at],
            first_call: Box::new(call.clone()),
            second: members[*other],
            second_call: Box::new(header.call.clone()),
        })
    };
    let conflict_with_first = others.iter().find_map(|other| conflict(*first, &first_header.call, other));
    // Calls that agree with the first agree with each other, except for the chunks of an
    // all-to-all-v, which differ from pair to pair.
    if conflict_with_first.is_some() || !matches!(first_header.call.operation, Operation::AllToAllV { .. }) {
        return conflict_with_first;
    }
    // A rank is also compared with itself, because it receives the elements that it sends to
    // itself.
    headers.iter().enumerate().find_map(|(i, (place, header))| {
        headers[i..].iter().find_map(|other| conflict(*place, &header.call, other))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(operation: Operation, element: Option<ElementType>, fault: Option<Fault>) -> Header {
        Header { sequence: 7, call: Call { operation, element }, fault }
    }

    #[test]
    fn headers_survive_a_round_trip() {
        let (send_counts, receive_counts) = (vec![1, 0, 5], vec![0, 2, 9]);
        let operations = [
            Operation::Barrier,
            Operation::Split,
            Operation::AllReduce { count: 3, op: ReduceOp::Min },
            Operation::Broadcast { count: 0, root: 2 },
            Operation::AllGather { count: 1 << 40 },
            Operation::ReduceScatter { count: 8, op: ReduceOp::Max },
            Operation::AllToAllV { send_counts, receive_counts },
            Operation::Send { count: 4, to: 1, tag: u32::MAX },
            Operation::Receive { count: 4, from: 0, tag: 0 },
            Operation::Group { ranks: vec![2, 0] },
        ];
        let wrong_length =
            |buffer| Some(Fault::WrongLength(LengthMismatch { buffer, expected: usize::MAX, actual: 1 }));
        let faults =
            [None, Some(Fault::NoSuchRank { rank: 9 }), Some(Fault::Unsupported), Some(Fault::TooLong)];
        for operation in operations {
            for fault in faults.iter().cloned().chain(BUFFERS.map(wrong_length)) {
                for element in ELEMENTS.map(Some).into_iter().chain([None]) {
                    let sent = header(operation.clone(), element, fault.clone());
                    let words = sent.encode(3);
                    assert!(words.len() <= Header::capacity(3));
                    assert_eq!(Header::decode(&words), Some(sent));
                }
            }
        }
    }

    #[test]
    fn words_of_another_version_are_rejected() {
        assert_eq!(Header::decode(&[0; 8]), None);
        for (place, word) in [(1, 99), (2, 8), (3, 8)] {
            let mut words = header(Operation::Barrier, None, None).encode(1);
            words[place] = word;
            assert_eq!(Header::decode(&words), None, "{place}");
        }
        let counts = Operation::AllToAllV { send_counts: vec![1, 2], receive_counts: vec![2, 1] };
        let words = header(counts, None, None).encode(2);
        assert_eq!(Header::decode(&words[..words.len() - 1]), None);
    }
}

//! What ranks send each other about a call before its data moves, and how the calls are compared.

use super::work::Fault;
use crate::lengths::WrongLength;
use crate::{Call, ElementType, Error, Operation, ReduceOp};

/// Words before the counts of an all-to-all-v, and all words of other calls than those with lists.
pub(super) const FIXED: usize = 9;

/// The lengths that a [`Fault::WrongLength`] can be about; their places are their codes.
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

/// One rank's call, with its place among the collectives of the group and what is wrong with it by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) sequence: u64,
    pub(super) call: Call,
    pub(super) fault: Option<Fault>,
}

impl Header {
    /// The words that any header has at most in a group of `size`.
    pub(super) fn capacity(size: usize) -> usize {
        FIXED + 2 * size
    }

    /// As words for the members of a group of `size`. Lists of counts that are too long, which is their fault, are cut.
    pub(super) fn encode(&self, size: usize) -> Vec<u64> {
        let mut words = Vec::with_capacity(FIXED);
        self.encode_to(&mut words, size);
        words
    }

    /// The same, behind other words.
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
        };
        let element = self.call.element.map_or(0, |element| 1 + place(&ELEMENTS, &element));
        let (fault, details) = match self.fault {
            None => (0, [0; 2]),
            Some(Fault::NoSuchRank { rank }) => (1, [rank, 0]),
            Some(Fault::Unsupported) => (2, [0; 2]),
            Some(Fault::TooLong) => (3, [0; 2]),
            Some(Fault::WrongLength(WrongLength { buffer, expected, actual })) => {
                (4 + place(&BUFFERS, &buffer), [expected, actual])
            }
        };
        words.extend([self.sequence, code, element, fault]);
        words
            .extend(fields.iter().chain(&details).chain(counts[0]).chain(counts[1]).map(|&word| word as u64));
    }

    /// What [`encode`](Self::encode) made; `None` for anything else, which only another version of this crate sends.
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
                Some(Fault::WrongLength(WrongLength { buffer, expected, actual }))
            }
        };
        Some(Self { sequence, call: Call { operation, element }, fault })
    }
}

fn place<T: PartialEq>(list: &[T], element: &T) -> u64 {
    list.iter().position(|other| other == element).unwrap_or(list.len()) as u64
}

/// What is wrong with the calls of one operation, if anything, from the headers of all members that take part, each with
/// its place in the group: the same on all of them, since all have the same headers.
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
    let with_the_first = others.iter().find_map(|other| conflict(*first, &first_header.call, other));
    // Only the chunks of an all-to-all-v differ from pair to pair; all else that agrees with the first agrees.
    if with_the_first.is_some() || !matches!(first_header.call.operation, Operation::AllToAllV { .. }) {
        return with_the_first;
    }
    // A rank also agrees with itself: it receives what it sends to itself.
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
    fn a_header_arrives_as_it_was_sent() {
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
            |buffer| Some(Fault::WrongLength(WrongLength { buffer, expected: usize::MAX, actual: 1 }));
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
    fn words_of_another_version_are_not_understood() {
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

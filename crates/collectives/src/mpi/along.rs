//! Small all-reduces, whose data is sent along with the headers.
//!
//! To compare headers before any data is sent takes an exchange of messages more, which is most of the time of a small
//! all-reduce. So its members send their elements to each other behind the headers, in the same message as far as it has
//! room. The headers are compared first all the same: what was sent along is received, and then either reduced by every
//! member itself, in the order of the ranks, so that all have the same bits, and the same as threads; or, where the calls do
//! not agree, ignored.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use super::header::{FIXED, Header};
use super::library::EAGER_BYTES;
use super::spare::Spare;
use super::work::Work;
use crate::Operation;

/// What a member sends along to all others together, at most. Beyond it two exchanges take less time than the elements of all
/// members to all members.
pub(super) const LIMIT_BYTES: usize = 16 << 10;

/// 64-bit words in a message, the operation's header counted: what Open MPI sends within a host without asking the receiver
/// first, which would take as long as comparing the headers did.
const MESSAGE_WORDS: usize = EAGER_BYTES / size_of::<u64>();

/// The words of the data of this call, message by message, if the rank that made it sends them along to each other member of
/// a group of `size`: the first behind the header, the others in messages of their own. `None` if the data moves later.
pub(super) fn parts(header: &Header, size: usize) -> Option<impl Iterator<Item = Range<usize>> + use<>> {
    let Operation::AllReduce { count, .. } = header.call.operation else { return None };
    let bytes = count.checked_mul(header.call.element?.size_bytes())?;
    if header.fault.is_some() || bytes > limit_to_each(size) {
        return None;
    }
    let words = bytes.div_ceil(size_of::<u64>());
    let first = words.min(MESSAGE_WORDS - FIXED);
    let others = (first..words).step_by(MESSAGE_WORDS);
    Some(iter::once(0..first).chain(others.map(move |start| start..words.min(start + MESSAGE_WORDS))))
}

/// The messages of an operation for the others: the first with the header, and all with the data that is sent along.
pub(super) fn messages(
    header: &Header,
    work: Option<&Work>,
    size: usize,
    spare: &mut Spare,
) -> Vec<Arc<Vec<u64>>> {
    let Some((work, mut parts)) = work.zip(parts(header, size)) else {
        return vec![Arc::new(header.encode(size))];
    };
    let first = parts.next().unwrap_or_default();
    let mut message = spare.take(FIXED + first.len());
    header.encode_to(&mut message, size);
    work.buffers().append_words(first, &mut message);
    let further = parts.map(|part| {
        let mut message = spare.take(part.len());
        work.buffers().append_words(part, &mut message);
        message
    });
    iter::once(message).chain(further).map(Arc::new).collect()
}

/// Words of the longest message that begins with a header in a group of `size`.
pub(super) fn capacity(size: usize) -> usize {
    let most = FIXED + limit_to_each(size).div_ceil(size_of::<u64>());
    Header::capacity(size).max(most.min(MESSAGE_WORDS))
}

fn limit_to_each(size: usize) -> usize {
    LIMIT_BYTES / size.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::work::Fault;
    use crate::{Call, ElementType, ReduceOp};

    /// Where each message's part of the data ends; each begins where the one before ends.
    fn sent(count: usize, element: ElementType, size: usize) -> Option<Vec<usize>> {
        let operation = Operation::AllReduce { count, op: ReduceOp::Sum };
        let call = Call { operation, element: Some(element) };
        let mut end = 0;
        let part = |part: Range<usize>| {
            assert_eq!(part.start, end);
            end = part.end;
            end
        };
        parts(&Header { sequence: 0, call, fault: None }, size).map(|parts| parts.map(part).collect())
    }

    #[test]
    fn all_bytes_are_sent_in_messages() {
        let first = MESSAGE_WORDS - FIXED;
        let second = first + MESSAGE_WORDS;
        assert_eq!(sent(0, ElementType::F32, 2), Some(vec![0]));
        assert_eq!(sent(1, ElementType::U8, 2), Some(vec![1]));
        assert_eq!(sent(2 * first, ElementType::F32, 2), Some(vec![first]));
        assert_eq!(sent(2 * first + 1, ElementType::F32, 2), Some(vec![first, first + 1]));
        assert_eq!(sent(second + 7, ElementType::F64, 2), Some(vec![first, second, second + 7]));
    }

    #[test]
    fn the_limit_is_for_what_goes_to_all_others() {
        for (size, most) in [(1, LIMIT_BYTES), (2, LIMIT_BYTES), (3, LIMIT_BYTES / 2), (1_025, 16)] {
            let ends = sent(most, ElementType::U8, size).unwrap();
            assert!(FIXED + ends[0] <= capacity(size), "{size}");
            assert_eq!(sent(most + 1, ElementType::U8, size), None, "{size}");
            assert_eq!(sent(most / 8 + 1, ElementType::I64, size), None, "{size}");
        }
        assert_eq!(sent(usize::MAX, ElementType::F64, 2), None);
    }

    #[test]
    fn nothing_else_is_sent_along() {
        let all_reduce = Operation::AllReduce { count: 4, op: ReduceOp::Max };
        let calls = [(Operation::AllGather { count: 4 }, None), (all_reduce, Some(Fault::Unsupported))];
        for (operation, fault) in calls {
            let call = Call { operation, element: Some(ElementType::F16) };
            assert!(parts(&Header { sequence: 3, call, fault }, 2).is_none());
        }
    }
}

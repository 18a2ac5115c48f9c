//! Small all-reduces, whose data is sent with the headers (eagerly). A *header* is a message that
//! describes a rank's call. A *word* of a message has 8 bytes. A *fault* is an invalid argument of
//! a call.
//!
//! Comparing headers before any data is sent takes an additional exchange of messages, which is
//! most of the time of a small all-reduce. The members of a small all-reduce therefore send their
//! elements to each other behind the headers, in the same message as far as it has room. The
//! headers are still compared first. If the calls agree, every member reduces the received data
//! itself, in the order of the ranks, so that all members get the same bits, which are also those
//! of the thread backend. If the calls do not agree, the data is received and ignored.

use std::iter;
use std::ops::Range;
use std::sync::Arc;

use super::header::{FIXED_WORDS, Header};
use super::library::EAGER_BYTES;
use super::message_pool::MessagePool;
use super::prepared_call::PreparedCall;
use crate::Operation;

/// Maximum number of bytes that a member sends eagerly to all others together. Above it, two
/// exchanges take less time than sending the elements of all members to all members.
pub(super) const MAX_EAGER_BYTES: usize = 16 << 10;

/// Number of 64-bit words of a message, including the header. Open MPI sends such a message within
/// a host without a handshake, which would take as long as the comparison of the headers.
const MESSAGE_WORDS: usize = EAGER_BYTES / size_of::<u64>();

/// Returns the range of words of a call's data that each message carries, if the calling rank sends
/// them eagerly to each other member of a group of `size` ranks. `None` if the data is transferred
/// after the comparison of headers.
///
/// The first message also has the header. The others have data only.
pub(super) fn message_words(
    header: &Header,
    size: usize,
) -> Option<impl Iterator<Item = Range<usize>> + use<>> {
    let Operation::AllReduce { count, .. } = header.call.operation else { return None };
    let bytes = count.checked_mul(header.call.element?.size_bytes())?;
    if header.fault.is_some() || bytes > limit_to_each(size) {
        return None;
    }
    let words = bytes.div_ceil(size_of::<u64>());
    let first = words.min(MESSAGE_WORDS - FIXED_WORDS);
    let others = (first..words).step_by(MESSAGE_WORDS);
    Some(iter::once(0..first).chain(others.map(move |start| start..words.min(start + MESSAGE_WORDS))))
}

/// Returns the messages of an operation, which are sent to every other member of a group of `size`
/// ranks: the header, followed by the data that is sent eagerly. `call` is `None` if the call has a
/// fault: then only the header is sent. `pool` provides the memory.
pub(super) fn messages(
    header: &Header,
    call: Option<&PreparedCall>,
    size: usize,
    pool: &mut MessagePool,
) -> Vec<Arc<Vec<u64>>> {
    let Some((call, mut parts)) = call.zip(message_words(header, size)) else {
        return vec![Arc::new(header.encode(size))];
    };
    let first = parts.next().unwrap_or_default();
    let mut message = pool.acquire(FIXED_WORDS + first.len());
    header.encode_to(&mut message, size);
    call.buffers().append_words(first, &mut message);
    let further = parts.map(|part| {
        let mut message = pool.acquire(part.len());
        call.buffers().append_words(part, &mut message);
        message
    });
    iter::once(message).chain(further).map(Arc::new).collect()
}

/// Returns the maximum number of words of a message with a header in a group of `size` ranks.
pub(super) fn capacity(size: usize) -> usize {
    let eager_words = FIXED_WORDS + limit_to_each(size).div_ceil(size_of::<u64>());
    Header::capacity(size).max(eager_words.min(MESSAGE_WORDS))
}

fn limit_to_each(size: usize) -> usize {
    MAX_EAGER_BYTES / size.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::prepared_call::Fault;
    use crate::{Call, ElementType, ReduceOp};

    /// Returns the end of each message's part of the data. Each part begins at the end of the
    /// previous one.
    fn sent(count: usize, element: ElementType, size: usize) -> Option<Vec<usize>> {
        let operation = Operation::AllReduce { count, op: ReduceOp::Sum };
        let call = Call { operation, element: Some(element) };
        let mut end = 0;
        let part = |part: Range<usize>| {
            assert_eq!(part.start, end);
            end = part.end;
            end
        };
        message_words(&Header { sequence: 0, call, fault: None }, size).map(|parts| parts.map(part).collect())
    }

    #[test]
    fn messages_contain_all_bytes() {
        let first = MESSAGE_WORDS - FIXED_WORDS;
        let second = first + MESSAGE_WORDS;
        assert_eq!(sent(0, ElementType::F32, 2), Some(vec![0]));
        assert_eq!(sent(1, ElementType::U8, 2), Some(vec![1]));
        assert_eq!(sent(2 * first, ElementType::F32, 2), Some(vec![first]));
        assert_eq!(sent(2 * first + 1, ElementType::F32, 2), Some(vec![first, first + 1]));
        assert_eq!(sent(second + 7, ElementType::F64, 2), Some(vec![first, second, second + 7]));
    }

    #[test]
    fn the_limit_is_the_sum_over_all_receivers() {
        for (size, max) in [(1, MAX_EAGER_BYTES), (2, MAX_EAGER_BYTES), (3, MAX_EAGER_BYTES / 2), (1_025, 16)]
        {
            let ends = sent(max, ElementType::U8, size).unwrap();
            assert!(FIXED_WORDS + ends[0] <= capacity(size), "{size}");
            assert_eq!(sent(max + 1, ElementType::U8, size), None, "{size}");
            assert_eq!(sent(max / 8 + 1, ElementType::I64, size), None, "{size}");
        }
        assert_eq!(sent(usize::MAX, ElementType::F64, 2), None);
    }

    #[test]
    fn other_and_faulty_calls_are_not_sent_eagerly() {
        let all_reduce = Operation::AllReduce { count: 4, op: ReduceOp::Max };
        let calls = [(Operation::AllGather { count: 4 }, None), (all_reduce, Some(Fault::Unsupported))];
        for (operation, fault) in calls {
            let call = Call { operation, element: Some(ElementType::F16) };
            assert!(message_words(&Header { sequence: 3, call, fault }, 2).is_none());
        }
    }
}

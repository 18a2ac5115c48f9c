//! Small all-reduces, whose data is sent along with the headers.
//!
//! To compare headers before any data is sent takes an exchange of messages more, which is most of the time of a small
//! all-reduce. So its members send their elements to each other just before the headers. These are compared first all the
//! same: what was sent along is received, and then either reduced by every member itself, in the order of the ranks, so that
//! all have the same bits, and the same as threads; or, where the calls do not agree, ignored.

use super::header::Header;
use crate::Operation;

/// What a member sends along to all others together, at most. Beyond it two exchanges take less time than the elements of all
/// members to all members.
pub(super) const LIMIT_BYTES: usize = 16 << 10;

/// 64-bit words in a message: 2 KiB. Open MPI sends up to 4 KiB, its own header counted, within a host without asking the receiver
/// first, which would take as long as comparing the headers did.
pub(super) const PIECE_WORDS: usize = 256;

/// The lengths in words of the messages that the rank which made this call sends along to each other member of a group of
/// `size`; `None` if it sends none, and moves its data later.
pub(super) fn pieces(header: &Header, size: usize) -> Option<impl Iterator<Item = usize> + use<>> {
    let Operation::AllReduce { count, .. } = header.call.operation else { return None };
    let bytes = count.checked_mul(header.call.element?.size_bytes())?;
    let to_all = bytes.checked_mul(size.saturating_sub(1).max(1))?;
    if header.fault.is_some() || to_all > LIMIT_BYTES {
        return None;
    }
    let words = bytes.div_ceil(size_of::<u64>());
    Some((0..words).step_by(PIECE_WORDS).map(move |start| PIECE_WORDS.min(words - start)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::work::Fault;
    use crate::{Call, ElementType, ReduceOp};

    fn sent(count: usize, element: ElementType, size: usize) -> Option<Vec<usize>> {
        let operation = Operation::AllReduce { count, op: ReduceOp::Sum };
        let call = Call { operation, element: Some(element) };
        pieces(&Header { sequence: 0, call, fault: None }, size).map(Iterator::collect)
    }

    #[test]
    fn all_bytes_are_sent_in_pieces() {
        assert_eq!(sent(0, ElementType::F32, 2), Some(vec![]));
        assert_eq!(sent(1, ElementType::U8, 2), Some(vec![1]));
        assert_eq!(sent(1_024, ElementType::F32, 2), Some(vec![256, 256]));
        assert_eq!(sent(1_025, ElementType::F32, 2), Some(vec![256, 256, 1]));
    }

    #[test]
    fn the_limit_is_for_what_goes_to_all_others() {
        for (size, most) in [(1, LIMIT_BYTES), (2, LIMIT_BYTES), (3, LIMIT_BYTES / 2), (1_025, 16)] {
            assert!(sent(most, ElementType::U8, size).is_some(), "{size}");
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
            assert!(pieces(&Header { sequence: 3, call, fault }, 2).is_none());
        }
    }
}

//! Assignment of MPI's tags, the numbers by which messages of a communicator are matched. The first
//! four have a fixed use. The others are assigned by use and number. A *header* is a message that
//! describes a rank's call, a *notice* a message about liveness or failures.

use std::ffi::c_int;

/// Tag of the headers of collectives.
pub(super) const HEADER: c_int = 0;

/// Tag of the messages by which members call for a subgroup.
pub(super) const GROUP: c_int = 1;

/// Tag of the notices of a group.
pub(super) const NOTICE: c_int = 2;

/// Tag of data that is sent eagerly after a header.
pub(super) const EAGER_DATA: c_int = 3;

/// First tag of the [`TagKind`]s.
const FIRST: c_int = 4;

/// Use of a numbered tag. For a message, the number is the tag given by the caller.
#[derive(Debug, Clone, Copy)]
pub(super) enum TagKind {
    /// Header that the sender of a message sends to the receiver.
    SenderHeader = 0,
    /// Header that the receiver of a message sends to the sender.
    ReceiverHeader = 1,
    /// Data of a message.
    Data = 2,
    /// Creation of a communicator.
    Communicator = 3,
}

/// Returns the tag of a kind with this number, or `None` if it exceeds `largest`, the largest tag
/// that MPI supports.
pub(super) fn tag(kind: TagKind, number: u64, largest: c_int) -> Option<c_int> {
    let tag = number.checked_mul(4)?.checked_add(kind as u64 + FIRST as u64)?;
    c_int::try_from(tag).ok().filter(|&tag| tag <= largest)
}

/// Returns the largest number for which every [`TagKind`] has a tag of at most `largest`.
pub(super) fn max_number(largest: c_int) -> u32 {
    (largest - FIRST - TagKind::Communicator as c_int).max(0) as u32 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_distinct_and_within_the_limit() {
        let kinds = [TagKind::SenderHeader, TagKind::ReceiverHeader, TagKind::Data, TagKind::Communicator];
        for largest in 7..40 {
            let mut seen = vec![HEADER, GROUP, NOTICE, EAGER_DATA];
            let numbers = u64::from(max_number(largest)) + 1;
            for number in 0..numbers {
                seen.extend(kinds.map(|kind| tag(kind, number, largest).expect("the number is among them")));
            }
            seen.dedup();
            assert_eq!(seen, (0..).take(seen.len()).collect::<Vec<c_int>>());
            assert_eq!(tag(TagKind::Communicator, numbers, largest), None);
        }
        assert_eq!(tag(TagKind::Data, u64::MAX, c_int::MAX), None);
    }
}

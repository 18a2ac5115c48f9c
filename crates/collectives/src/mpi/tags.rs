//! How MPI's tags are divided.

use std::ffi::c_int;

/// Headers of collectives.
pub(super) const HEADER: c_int = 0;

/// Members that call for a subgroup.
pub(super) const GROUP: c_int = 1;

/// Notices about the group's ranks.
pub(super) const NOTICE: c_int = 2;

/// Data that is sent along with headers.
pub(super) const ALONG: c_int = 3;

const FIRST: c_int = 4;

/// What a tag of one message, or of one new communicator, is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    SenderHeader = 0,
    ReceiverHeader = 1,
    Data = 2,
    Communicator = 3,
}

/// The `number`-th tag of a kind, if it is among MPI's.
pub(super) fn tag(kind: Kind, number: u64, largest: c_int) -> Option<c_int> {
    let tag = number.checked_mul(4)?.checked_add(kind as u64 + FIRST as u64)?;
    c_int::try_from(tag).ok().filter(|&tag| tag <= largest)
}

/// The largest number that every [`Kind`] has a tag for.
pub(super) fn largest_number(largest: c_int) -> u32 {
    (largest - FIRST - Kind::Communicator as c_int).max(0) as u32 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_distinct_and_end_at_the_largest() {
        let kinds = [Kind::SenderHeader, Kind::ReceiverHeader, Kind::Data, Kind::Communicator];
        for largest in 7..40 {
            let mut seen = vec![HEADER, GROUP, NOTICE, ALONG];
            let numbers = u64::from(largest_number(largest)) + 1;
            for number in 0..numbers {
                seen.extend(kinds.map(|kind| tag(kind, number, largest).expect("the number is among them")));
            }
            seen.dedup();
            assert_eq!(seen, (0..).take(seen.len()).collect::<Vec<c_int>>());
            assert_eq!(tag(Kind::Communicator, numbers, largest), None);
        }
        assert_eq!(tag(Kind::Data, u64::MAX, c_int::MAX), None);
    }
}

//! Whether there is memory for what is to be measured.

use collectives::CollectiveKind;

use crate::coll::contender::Work;
use crate::coll::size;
use crate::command::bad_input;

/// Asks for as much at once as all ranks of the largest operation hold together, and gives it back untouched.
///
/// # Errors
/// Names the operation that there is no memory for.
pub(crate) fn check(groups: &[(usize, Vec<(CollectiveKind, u64)>)]) -> anyhow::Result<()> {
    for (ranks, operations) in groups {
        for &(collective, bytes) in operations {
            let is_there = needed(collective, *ranks, bytes)
                .is_some_and(|elements| Vec::<f32>::new().try_reserve_exact(elements).is_ok());
            if !is_there {
                return Err(bad_input(format!(
                    "there is no memory for {collective} of {} among {ranks} ranks: give smaller --sizes or fewer --ranks",
                    size::shown(bytes)
                )));
            }
        }
    }
    Ok(())
}

/// Elements of all ranks' buffers; `None` for more than can be counted.
fn needed(collective: CollectiveKind, ranks: usize, bytes: u64) -> Option<usize> {
    // Beside an all-reduce the same bytes are copied.
    let work =
        if collective == CollectiveKind::AllReduce { Work::Copy } else { Work::Collective(collective) };
    let (send, receive) = work.elements(bytes, ranks);
    send.checked_add(receive)?.checked_mul(ranks)
}

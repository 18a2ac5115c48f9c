//! Check that the memory suffices for the requested operations.

use collectives::CollectiveKind;

use crate::coll::CollOperation;
use crate::coll::bench_rank::BenchOperation;
use crate::coll::size;
use crate::command::bad_input;

/// Checks that the buffers of all ranks can be allocated for each operation, by a reservation that
/// is never used. `groups` has the numbers of ranks, each with pairs of an operation and the size
/// of a rank's larger buffer in bytes.
///
/// # Errors
/// Bad input with the name of the operation for which the memory is insufficient.
pub(crate) fn check(groups: &[(usize, Vec<(CollOperation, u64)>)]) -> anyhow::Result<()> {
    for (ranks, operations) in groups {
        for &(operation, bytes) in operations {
            let is_there = needed(operation, *ranks, bytes)
                .is_some_and(|elements| Vec::<f32>::new().try_reserve_exact(elements).is_ok());
            if !is_there {
                return Err(bad_input(format!(
                    "there is no memory for {operation} of {} among {ranks} ranks: give smaller --sizes \
                     or fewer --ranks",
                    size::format(bytes)
                )));
            }
        }
    }
    Ok(())
}

/// Returns the number of elements of all ranks' buffers. `None` if it overflows.
fn needed(operation: CollOperation, ranks: usize, bytes: u64) -> Option<usize> {
    // An all-reduce is compared with a copy of the same bytes.
    let is_copied = operation == CollOperation::Collective(CollectiveKind::AllReduce);
    let executed = if is_copied { BenchOperation::Copy } else { BenchOperation::Measured(operation) };
    let (send, receive) = executed.elements(bytes, ranks);
    // A redistribution packs what it sends.
    let packed = if operation == CollOperation::Redistribution { send } else { 0 };
    send.checked_add(receive)?.checked_add(packed)?.checked_mul(ranks)
}

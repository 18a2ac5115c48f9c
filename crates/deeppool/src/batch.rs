//! Valid batches.

use crate::Error;

/// Maximum number of samples of a batch. Within it, and the limits of `layer-graph` on a network,
/// counts of elements and bytes fit into 64 bits.
pub(crate) const MAX_BATCH: usize = 1 << 20;

/// Checks the number of samples of a batch.
///
/// # Errors
/// [`Error::EmptyBatch`] for an empty batch. [`Error::Setting`] for more than 2^20 samples.
pub(crate) fn check_batch(batch: usize) -> Result<(), Error> {
    match batch {
        0 => Err(Error::EmptyBatch),
        1..=MAX_BATCH => Ok(()),
        _ => Err(Error::Setting {
            setting: "the batch",
            expected: "at most 1048576 samples",
            got: batch.to_string(),
        }),
    }
}

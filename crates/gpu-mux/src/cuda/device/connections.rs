//! Check of the number of hardware queues, the connections on which the host sends work to the
//! device.

use ::cuda::{Error, GATE, Result};

/// Streams that a process may have besides those of a [`CudaDevice`](super::CudaDevice): one for
/// copies and CUDA's default stream.
const SPARE_QUEUES: usize = 2;

/// Checks that the device has a hardware queue for each of `streams` streams and two others, as a
/// gate requires.
///
/// # Errors
/// [`Error::Unsupported`] if it does not.
pub(super) fn enough_hardware_queues(streams: usize) -> Result<()> {
    let variable = "CUDA_DEVICE_MAX_CONNECTIONS";
    let there = std::env::var(variable).ok().and_then(|queues| queues.trim().parse().ok());
    let there = there.filter(|queues| (1..=32).contains(queues)).unwrap_or(8);
    let needed = streams + SPARE_QUEUES;
    if needed <= there {
        return Ok(());
    }
    Err(Error::Unsupported {
        technique: GATE,
        reason: format!(
            "a gate needs a hardware queue for each of the {streams} streams and {SPARE_QUEUES} more, and \
             there are {there}: set {variable} to {needed} or more (at most 32) before the process starts"
        ),
    })
}

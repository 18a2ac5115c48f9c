//! Times of events on the device, converted to the time of the host. Errors are those of failed
//! calls of the CUDA driver.

use std::time::Duration;

use ::cuda::{Event, Result};

use super::queue::DeviceQueue;

/// Time after which the reference event is replaced. CUDA returns milliseconds in single precision:
/// below this time the rounding error is a few nanoseconds, less than the resolution of its timer.
const RENEWED_AFTER: Duration = Duration::from_millis(20);

/// Conversion of the completion times of events on all streams to one time axis, which begins at
/// the epoch of the `CudaDevice`.
///
/// The reference is a completed event, which a later one replaces from time to time; no extra
/// events are recorded.
#[derive(Debug, Default)]
pub(super) struct DeviceClock {
    reference: Option<(Event, Duration)>,
}

impl DeviceClock {
    /// Returns the end time, from the epoch, of the tasklet that was last removed from `queue`,
    /// without a launch since. `None` if none was removed. The first end time is assumed to be
    /// `now`.
    pub(super) fn last_end(&mut self, queue: &mut DeviceQueue, now: Duration) -> Result<Option<Duration>> {
        let Some(end) = queue.last_end() else { return Ok(None) };
        let Some((reference, base)) = &self.reference else {
            let event = Event::timed(&queue.stream)?;
            self.reference = queue.exchange_last_end(event).map(|reference| (reference, now));
            return Ok(Some(now));
        };
        let since = end.milliseconds_since(reference)? * 1e-3;
        let passed = Duration::try_from_secs_f64(since.abs()).unwrap_or_default();
        let ended = if since < 0.0 { base.saturating_sub(passed) } else { *base + passed };
        if since > RENEWED_AFTER.as_secs_f64() {
            self.reference = match self.reference.take() {
                Some((old, _)) => queue.exchange_last_end(old).map(|reference| (reference, ended)),
                None => None,
            };
        }
        Ok(Some(ended))
    }
}

use std::time::Duration;

use super::queue::DeviceQueue;
use crate::cuda::{Event, Result};

/// How long an event serves as the reference. CUDA measures in milliseconds of single precision: up to here to some
/// nanoseconds, better than its timer ticks.
const RENEWED_AFTER: Duration = Duration::from_millis(20);

/// When events of all streams completed, on one time axis.
///
/// The reference is a complete event, and a later one takes its place from time to time; nothing is recorded for it.
#[derive(Debug, Default)]
pub(super) struct DeviceClock {
    reference: Option<(Event, Duration)>,
}

impl DeviceClock {
    /// When the tasklet that was taken out of `queue` last had ended. The first is taken to have ended `now`.
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

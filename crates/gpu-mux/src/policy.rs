use std::num::NonZeroUsize;
use std::time::Duration;

/// The rules of sharing. Every rule is a field, so that what it is worth can be measured by switching it off.
///
/// ```
/// use gpu_mux::Policy;
/// use std::time::Duration;
///
/// let gentle = Policy { background_piece: Duration::from_micros(200), ..Policy::default() };
/// assert_eq!(gentle.background_in_flight, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Foreground compute tasklets that may be in flight at once. More than one hides the launch latency of an
    /// asynchronous device. Default 4, as in DeepPool's published runtime.
    pub foreground_ahead: NonZeroUsize,
    /// More than [`foreground_ahead`](Self::foreground_ahead) may be in flight while all of them together are
    /// estimated to take less than this, so that a run of short tasklets does not leave the device dry. Zero
    /// switches the rule off. Default 1 ms, as in DeepPool's published runtime.
    pub foreground_ahead_time: Duration,
    /// Background tasklets that may be in flight at once: with [`background_piece`](Self::background_piece) it
    /// bounds how long the foreground waits. Zero holds the background back altogether. Default 1.
    pub background_in_flight: usize,
    /// How long one background tasklet should take at most. Longer work is to be cut before it is offered
    /// (see [`pieces`](crate::pieces)); what is longer all the same is counted, not refused. Default 500 us.
    pub background_piece: Duration,
    /// How long the foreground's compute must have been idle before background is launched. It keeps pieces out
    /// of gaps too short for them, at the price of the beginning of every gap. Default zero.
    pub background_after: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            foreground_ahead: NonZeroUsize::MIN.saturating_add(3),
            foreground_ahead_time: Duration::from_millis(1),
            background_in_flight: 1,
            background_piece: Duration::from_micros(500),
            background_after: Duration::ZERO,
        }
    }
}

//! Events.

use super::{Handle, capture::CapturedRecord};

/// An event.
pub(crate) struct Event {
    /// Context in which the event was created.
    pub(super) context: Handle,
    /// Whether the event records times (no `CU_EVENT_DISABLE_TIMING`).
    pub(super) timed: bool,
    /// Last record of the event.
    pub(super) last: Record,
}

/// The last record of an event.
pub(super) enum Record {
    /// The event has not been recorded.
    Never,
    /// A record in a stream: its number, and the time in ns once it is complete.
    Stream { number: u64, completed: Option<u64> },
    /// A record in a capture, which stands for nodes.
    Captured(CapturedRecord),
}

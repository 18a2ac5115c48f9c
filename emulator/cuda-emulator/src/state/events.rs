//! Events. A record is one execution of `cuEventRecord`.

use super::{Handle, capture::CapturedRecord};

/// State of an event.
pub(crate) struct Event {
    /// Context in which the event was created.
    pub(super) context: Handle,
    /// Whether the event records times (no `CU_EVENT_DISABLE_TIMING`).
    pub(super) timed: bool,
    /// Last record of the event.
    pub(super) last: Record,
}

/// Last record of an event.
pub(super) enum Record {
    /// The event has not been recorded.
    Never,
    /// Record in a stream: its number, and its virtual time in ns, or `None` while it is not
    /// complete.
    Stream { number: u64, completed: Option<u64> },
    /// Record in a capture, which stands for nodes of the captured graph.
    Captured(CapturedRecord),
}

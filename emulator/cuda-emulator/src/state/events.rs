//! Events.

use super::{Handle, capture::CapturedRecord};

/// An event.
pub(crate) struct Event {
    pub(super) context: Handle,
    pub(super) timed: bool,
    pub(super) last: Record,
}

/// The last record of an event.
pub(super) enum Record {
    Never,
    /// A record in a stream: its number, and the time in ns once it is complete.
    Stream {
        number: u64,
        completed: Option<u64>,
    },
    /// A record in a capture, which stands for nodes.
    Captured(CapturedRecord),
}

//! Events: markers in a stream.

use super::{Handle, capture::CapturedRecord};

/// An event.
pub(crate) struct Event {
    pub(super) context: Handle,
    pub(super) timed: bool,
    pub(super) last: Record,
}

/// An event's last record.
pub(super) enum Record {
    Never,
    /// In a stream, under this number. The time in ns, once it is complete.
    Stream {
        number: u64,
        passed: Option<u64>,
    },
    /// In a capture: it stands for nodes, not for work in a stream.
    Captured(CapturedRecord),
}

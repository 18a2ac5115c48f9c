//! Streams.

use super::{Handle, capture::Membership, plan::PlanProgress, work::QueuedWork};
use std::collections::VecDeque;

/// A stream.
pub(crate) struct Stream {
    pub(super) context: Handle,
    /// Device of the context.
    pub(super) device: i32,
    pub(super) priority: i32,
    /// Whether the stream does not synchronise with the legacy default stream.
    pub(super) non_blocking: bool,
    /// Whether the caller has destroyed the stream. It is removed when its work has completed.
    pub(super) destroyed: bool,
    /// Queue of work. The first entry is in progress.
    pub(super) queue: VecDeque<QueuedWork>,
    /// Progress of the graph at the head of the queue.
    pub(super) graph: Option<PlanProgress>,
    pub(super) capture: Option<Membership>,
}

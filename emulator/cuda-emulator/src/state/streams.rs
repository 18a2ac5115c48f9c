//! Streams: queues of work in order.

use super::{Handle, capture::Membership, plan::PlanRun, work::Queued};
use std::collections::VecDeque;

/// A queue of work.
pub(crate) struct Stream {
    pub(super) context: Handle,
    /// The context's.
    pub(super) device: i32,
    pub(super) priority: i32,
    /// Does without the legacy default stream.
    pub(super) non_blocking: bool,
    /// Destroyed by the caller; it goes when its work has ended.
    pub(super) destroyed: bool,
    /// The first one is under way.
    pub(super) queue: VecDeque<Queued>,
    /// How far the graph at the queue's head has come.
    pub(super) graph: Option<PlanRun>,
    pub(super) capture: Option<Membership>,
}

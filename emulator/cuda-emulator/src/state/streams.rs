//! Streams.

use super::{Handle, capture::Membership, exec_steps::ExecProgress, work::QueuedWork};
use std::collections::VecDeque;

/// State of a stream.
pub(crate) struct Stream {
    /// Context in which the stream was created.
    pub(super) context: Handle,
    /// Device of the context.
    pub(super) device: i32,
    /// Priority of its kernels. Lower numbers run first, as in CUDA.
    pub(super) priority: i32,
    /// Whether the stream does not synchronise with the legacy default stream.
    pub(super) non_blocking: bool,
    /// Whether the caller has destroyed the stream. It is removed when its work has completed.
    pub(super) destroyed: bool,
    /// Queue of work. Its head, the first entry, is in progress.
    pub(super) queue: VecDeque<QueuedWork>,
    /// Progress of the graph launch at the head of the queue. `None` if the head is no graph launch
    /// or has not started.
    pub(super) graph: Option<ExecProgress>,
    /// Capture that the stream belongs to, or `None` if it is not capturing.
    pub(super) capture: Option<Membership>,
}

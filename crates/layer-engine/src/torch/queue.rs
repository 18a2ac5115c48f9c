//! Queues of the libtorch engine.

use super::Failure;
use super::ffi::{Stream, StreamGuard};

/// A queue of a [`TorchEngine`](crate::TorchEngine): a CUDA stream. On the CPU there is no stream,
/// and work runs immediately.
#[derive(Debug)]
pub struct TorchQueue {
    stream: Option<Stream>,
}

impl TorchQueue {
    /// Creates a queue for a stream, or for the CPU if there is none.
    pub(super) fn new(stream: Option<Stream>) -> Self {
        Self { stream }
    }

    /// Returns the CUDA stream, or `None` on the CPU.
    pub(super) fn stream(&self) -> Option<Stream> {
        self.stream
    }

    /// Makes the stream current for this thread until the guard is dropped, so that work is
    /// enqueued in it. Returns `None` on the CPU.
    ///
    /// # Errors
    /// If libtorch cannot make the stream current.
    pub(super) fn enter(&self) -> Result<Option<StreamGuard>, Failure> {
        self.stream.map(Stream::enter).transpose()
    }
}

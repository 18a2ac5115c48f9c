use super::Failure;
use super::ffi::{Stream, StreamGuard};

/// A queue of a [`TorchEngine`](crate::TorchEngine): a CUDA stream. Empty on the CPU, where work
/// runs immediately.
#[derive(Debug)]
pub struct TorchQueue {
    stream: Option<Stream>,
}

impl TorchQueue {
    pub(super) fn new(stream: Option<Stream>) -> Self {
        Self { stream }
    }

    pub(super) fn stream(&self) -> Option<Stream> {
        self.stream
    }

    /// Directs this thread's work to the queue until the guard is dropped.
    pub(super) fn enter(&self) -> Result<Option<StreamGuard>, Failure> {
        self.stream.map(Stream::enter).transpose()
    }
}

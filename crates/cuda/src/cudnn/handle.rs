//! Handles of cuDNN.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use cudarc::cudnn::sys::{self, cudnnContext};

use super::{Cudnn, CudnnFunctions, dnn};
use crate::driver::written;
use crate::handle::Raw;
use crate::memory::check_no_capture;
use crate::{Error, Result, Stream};

/// Handle of cuDNN for a stream, into which convolutions are enqueued with it. It is used by one
/// thread at a time.
pub struct CudnnHandle {
    pub(super) state: Arc<HandleState>,
    /// Not shared by threads: cuDNN does not synchronize its use.
    single: PhantomData<Cell<()>>,
}

impl CudnnHandle {
    /// Creates a handle for a stream. This allocates memory on the device; do not call it while a
    /// stream is being captured.
    ///
    /// # Errors
    /// [`Error::Invalid`] during a capture; [`Error::Library`]; CUDA errors.
    pub fn new(cudnn: &Cudnn, stream: &Stream) -> Result<Self> {
        let what = "a handle of cuDNN";
        check_no_capture(what)?;
        if stream.is_capturing()? {
            return Err(Error::Invalid(format!(
                "{what} cannot be created for a stream that is being captured"
            )));
        }
        stream.context().bind()?;
        // SAFETY: the handle is written; the context is current.
        let raw = written(|raw| unsafe { dnn!(&cudnn.0, cudnnCreate(raw)) })?;
        let state = HandleState { functions: Arc::clone(&cudnn.0), stream: stream.clone(), raw: Raw(raw) };
        let handle = Self { state: Arc::new(state), single: PhantomData };
        // SAFETY: the handle and the stream are alive.
        unsafe { dnn!(&cudnn.0, cudnnSetStream(raw, stream.raw().cast())) }?;
        Ok(handle)
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.state.stream
    }
}

impl fmt::Debug for CudnnHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CudnnHandle({:?})", self.state.raw)
    }
}

/// Handle, destroyed with its last reference.
pub(super) struct HandleState {
    functions: Arc<CudnnFunctions>,
    pub(super) stream: Stream,
    pub(super) raw: Raw<cudnnContext>,
}

// SAFETY: only the thread that has the `CudnnHandle` passes the handle to cuDNN. The state is
// shared to be kept alive.
unsafe impl Sync for Raw<cudnnContext> {}

impl Drop for HandleState {
    fn drop(&mut self) {
        // Kernels in flight may use memory of the handle.
        self.stream.context().destroy_when_idle(|| {
            // SAFETY: it is destroyed once.
            unsafe { dnn!(&self.functions, cudnnDestroy(self.raw.0)) }
        });
    }
}

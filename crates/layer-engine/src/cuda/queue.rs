//! Queues: CUDA streams with the launch context in device memory.

use std::fmt::Write;
use std::sync::Arc;

use cuda::{Buffer, CudnnHandle, Kernel, LaunchShape, Stream};

use super::device::Device;
use super::module::Family;
use super::{NAME, allocation_failed, failed};
use crate::{EngineError, LaunchContext, Storage};

/// Size of the launch context in words of 32 bits: `Context` in `kernels/basics.cuh`.
const CONTEXT_WORDS: usize = 6;

/// Number of recent kernels that the error of a wait names.
const RECENT_KERNELS: usize = 4;

/// A queue of a [`CudaEngine`](crate::CudaEngine): a CUDA stream, and device memory with the seed,
/// the iteration and the learning rate.
///
/// A captured graph reads this memory when it is launched. Call [`set_context`](Self::set_context)
/// in this queue before each launch to replay the graph in another iteration. A graph reads the
/// context of the queue that it was captured from, also if it is launched into another stream.
#[derive(Debug)]
pub struct CudaQueue {
    // Dropped first: it waits for the kernels of the engine's modules.
    memory: Buffer<u32>,
    stream: Stream,
    set: Kernel,
    /// Content of the memory once all enqueued work is complete.
    context: Option<LaunchContext>,
    /// The kernels that were enqueued last. One of them may have caused the error of a failed wait.
    recent: [Option<Arc<str>>; RECENT_KERNELS],
    next: usize,
    /// Workspace of the vendor's libraries, as large as any kernel so far needed.
    workspace: Buffer<u8>,
    /// Handle of cuDNN, once a kernel needed it.
    cudnn: Option<CudnnHandle>,
    /// Keeps the modules of the enqueued kernels loaded.
    device: Device,
}

impl CudaQueue {
    /// Creates a queue on a stream of the engine's device.
    ///
    /// # Errors
    /// If allocation of the context fails.
    pub(super) fn new(device: &Device, stream: &Stream) -> Result<Self, EngineError> {
        let memory =
            Buffer::zeros(&device.context, CONTEXT_WORDS).map_err(allocation_failed(CONTEXT_WORDS))?;
        Ok(Self {
            memory,
            stream: stream.clone(),
            set: device.function(Family::Optimizer, Storage::Scalar, "set_context")?,
            context: None,
            recent: [const { None }; RECENT_KERNELS],
            next: 0,
            workspace: Buffer::default(),
            cudnn: None,
            device: device.clone(),
        })
    }

    /// Prepares the queue for kernels whose libraries need a workspace of this size, in bytes, and
    /// cuDNN or not.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the queue is being captured and was not prepared;
    /// [`EngineError::OutOfMemory`]; [`EngineError::Cuda`].
    pub(super) fn prepare_libraries(&mut self, bytes: usize, uses_cudnn: bool) -> Result<(), EngineError> {
        if bytes <= self.workspace.size_bytes() && (self.cudnn.is_some() || !uses_cudnn) {
            return Ok(());
        }
        if self.stream.is_capturing().map_err(failed("prepare a library"))? {
            let problem = "a kernel of a library was captured before it was run once in its queue".to_owned();
            return Err(EngineError::Library { engine: NAME, problem });
        }
        if bytes > self.workspace.size_bytes() {
            let allocated = Buffer::uninitialized(&self.device.context, bytes);
            self.workspace = allocated.map_err(allocation_failed(bytes / size_of::<f32>()))?;
        }
        if uses_cudnn && self.cudnn.is_none() {
            let found = self.device.libraries.convolutions();
            let library =
                found.map_err(|reason| EngineError::Library { engine: NAME, problem: reason.to_owned() })?;
            let handle = CudnnHandle::new(&library.library, &self.stream);
            self.cudnn = Some(handle.map_err(failed("create a handle of cuDNN"))?);
        }
        Ok(())
    }

    /// Returns the workspace of libraries and the handle of cuDNN.
    pub(super) fn libraries(&mut self) -> (&Buffer<u8>, Option<&mut CudnnHandle>) {
        (&self.workspace, self.cudnn.as_mut())
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sets the seed, iteration and learning rate for the work that follows in the queue, and for
    /// graphs that were captured from it. Enqueues nothing if they are already set.
    ///
    /// # Errors
    /// If the queue is being captured (the graph would set the context again at every launch), or
    /// CUDA fails.
    pub fn set_context(&mut self, context: &LaunchContext) -> Result<(), EngineError> {
        if self.context.as_ref() == Some(context) {
            return Ok(());
        }
        if self.stream.is_capturing().map_err(failed("set the launch context"))? {
            let problem =
                "the launch context changed while the queue was captured: set it before the capture"
                    .to_owned();
            return Err(EngineError::Library { engine: NAME, problem });
        }
        self.enqueue_context(context).map_err(failed("set the launch context"))?;
        self.context = Some(*context);
        Ok(())
    }

    /// Returns the seed, iteration and learning rate for the work that follows in the queue, or
    /// `None` if they were never set.
    #[must_use]
    pub fn context(&self) -> Option<LaunchContext> {
        self.context
    }

    fn enqueue_context(&self, context: &LaunchContext) -> cuda::Result<()> {
        #![allow(unsafe_code)]
        let (seed, iteration, rate) = (context.seed, context.iteration, context.learning_rate as f32);
        let arguments = [(&self.memory).into(), seed.into(), iteration.into(), rate.into()];
        // SAFETY: the arguments match the kernel, which writes a `Context` to the memory.
        unsafe { self.set.launch(&self.stream, LaunchShape::linear(1, 1), &arguments) }
    }

    /// Returns the memory of the launch context, laid out as `Context` in `kernels/basics.cuh`.
    pub(super) fn context_memory(&self) -> &Buffer<u32> {
        &self.memory
    }

    /// Records the name of a kernel that was enqueued, for the error of a later wait.
    pub(super) fn record_kernel(&mut self, kernel: &Arc<str>) {
        self.recent[self.next] = Some(kernel.clone());
        self.next = (self.next + 1) % RECENT_KERNELS;
    }

    /// Waits for all enqueued work.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] with the names of the last kernels if any of the work failed.
    pub(super) fn synchronize(&self) -> Result<(), EngineError> {
        self.stream.synchronize().map_err(|error| self.error("wait for the queue", error))
    }

    /// Converts the error of a call that waits for the queue. The result has `action`, the action
    /// that failed, and the names of the last kernels, any of which may have caused it.
    pub(super) fn error(&self, action: &str, source: cuda::Error) -> EngineError {
        let mut action = action.to_owned();
        let order = (0..RECENT_KERNELS).map(|back| (self.next + RECENT_KERNELS - 1 - back) % RECENT_KERNELS);
        for (index, kernel) in order.filter_map(|index| self.recent[index].as_deref()).enumerate() {
            let before = if index == 0 { ", whose last kernels are" } else { "," };
            let _ = write!(action, "{before} `{kernel}`");
        }
        EngineError::Cuda { action, source: source.into() }
    }
}

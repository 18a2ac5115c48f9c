//! Queues: CUDA streams with the launch context in device memory.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fmt::Write;
use std::ptr::from_ref;
use std::sync::Arc;

use cudarc::driver::sys::{CUstream, CUstreamCaptureStatus};
use cudarc::driver::{DriverError, result};

use super::device::{Device, Function};
use super::memory::DeviceMemory;
use super::module::Family;
use super::{DriverHandle, NAME, driver_error};
use crate::{EngineError, LaunchContext};

/// Size in bytes of the launch context: `Context` in `kernels/basics.cuh`.
const CONTEXT_BYTES: usize = 24;

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
    device: Device,
    stream: DriverHandle<CUstream>,
    is_owned: bool,
    memory: DeviceMemory,
    set: Function,
    /// Content of the memory once all enqueued work is complete.
    context: Option<LaunchContext>,
    /// The kernels that were enqueued last. One of them may have caused the error of a failed wait.
    recent: [Option<Arc<str>>; RECENT_KERNELS],
    next: usize,
}

impl CudaQueue {
    /// Creates a stream and a queue that owns it. Work of streams with lower `priority` runs first.
    ///
    /// # Errors
    /// If CUDA cannot create the stream or allocate the context.
    pub(super) fn new(device: &Device, priority: i32) -> Result<Self, EngineError> {
        let create = || -> Result<CUstream, DriverError> {
            device.bind()?;
            result::stream::create_with_priority(result::stream::StreamKind::NonBlocking, priority)
        };
        let (memory, set) = Self::allocate_context(device)?;
        let stream = DriverHandle(create().map_err(|error| driver_error("create a stream", error))?);
        Ok(Self::from_parts(device, stream, true, memory, set))
    }

    /// Creates a queue on a stream of another owner, which outlives it.
    ///
    /// # Errors
    /// If allocation of the context fails.
    pub(super) fn borrowed(device: &Device, stream: CUstream) -> Result<Self, EngineError> {
        let (memory, set) = Self::allocate_context(device)?;
        Ok(Self::from_parts(device, DriverHandle(stream), false, memory, set))
    }

    fn allocate_context(device: &Device) -> Result<(DeviceMemory, Function), EngineError> {
        Ok((DeviceMemory::zeros(device, CONTEXT_BYTES)?, device.function(Family::Optimizer, "set_context")?))
    }

    fn from_parts(
        device: &Device,
        stream: DriverHandle<CUstream>,
        is_owned: bool,
        memory: DeviceMemory,
        set: Function,
    ) -> Self {
        let recent = [const { None }; RECENT_KERNELS];
        Self { device: device.clone(), stream, is_owned, memory, set, context: None, recent, next: 0 }
    }

    /// Returns the stream as `CUstream` or `cudaStream_t` for other libraries. It is valid as long
    /// as this queue.
    #[must_use]
    pub fn as_raw(&self) -> *mut c_void {
        self.stream.0.cast()
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
        let set = |error| driver_error("set the launch context", error);
        self.device.bind().map_err(set)?;
        // SAFETY: the stream lives as long as the queue.
        let status = unsafe { result::stream::is_capturing(self.stream.0) }.map_err(set)?;
        if status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE {
            let problem =
                "the launch context changed while the queue was captured: set it before the capture"
                    .to_owned();
            return Err(EngineError::Library { engine: NAME, problem });
        }
        let (address, rate) = (self.memory.address(), context.learning_rate as f32);
        let mut arguments = [
            from_ref(&address).cast_mut().cast(),
            from_ref(&context.seed).cast_mut().cast(),
            from_ref(&context.iteration).cast_mut().cast(),
            from_ref(&rate).cast_mut().cast(),
        ];
        // SAFETY: the arguments match the kernel; the memory lives as long as the queue.
        unsafe { self.set.launch([1, 1], 1, self.stream.0, &mut arguments) }.map_err(set)?;
        self.context = Some(*context);
        Ok(())
    }

    /// Returns the seed, iteration and learning rate for the work that follows in the queue, or
    /// `None` if they were never set.
    #[must_use]
    pub fn context(&self) -> Option<LaunchContext> {
        self.context
    }

    /// Returns the device address of the launch context, laid out as `Context` in
    /// `kernels/basics.cuh`.
    pub(super) fn context_address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the device that the stream belongs to.
    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the stream, which is valid as long as the queue.
    pub(super) fn stream(&self) -> CUstream {
        self.stream.0
    }

    /// Records the name of a kernel that was enqueued, for the error of a later wait.
    pub(super) fn record_kernel(&mut self, kernel: &Arc<str>) {
        self.recent[self.next] = Some(kernel.clone());
        self.next = (self.next + 1) % RECENT_KERNELS;
    }

    /// Waits for all enqueued work.
    ///
    /// # Errors
    /// [`EngineError::Library`] with the names of the last kernels if any of the work failed.
    pub(super) fn synchronize(&mut self) -> Result<(), EngineError> {
        // SAFETY: the stream lives as long as the queue.
        let done = self.device.bind().and_then(|()| unsafe { result::stream::synchronize(self.stream.0) });
        done.map_err(|error| self.queue_error("wait for the queue", error))
    }

    /// Converts the error of a call that waits for the queue. The message has `action`, the action
    /// that failed, and the names of the last kernels, any of which may have caused it.
    pub(super) fn queue_error(&self, action: &str, error: DriverError) -> EngineError {
        let mut action = action.to_owned();
        let order = (0..RECENT_KERNELS).map(|back| (self.next + RECENT_KERNELS - 1 - back) % RECENT_KERNELS);
        for (index, kernel) in order.filter_map(|index| self.recent[index].as_deref()).enumerate() {
            let before = if index == 0 { ", whose last kernels are" } else { "," };
            let _ = write!(action, "{before} `{kernel}`");
        }
        driver_error(&action, error)
    }
}

impl Drop for CudaQueue {
    fn drop(&mut self) {
        if self.is_owned {
            let _ = self.device.bind();
            // SAFETY: the stream is destroyed once; the driver completes the enqueued work.
            let _ = unsafe { result::stream::destroy(self.stream.0) };
        }
    }
}

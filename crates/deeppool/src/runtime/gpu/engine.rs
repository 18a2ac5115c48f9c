//! The CUDA engine with buffers of NCCL, so that kernels and collectives use the same memory.
#![allow(unsafe_code)]

use std::sync::Arc;

use collectives::{NcclBuffer, NcclStream};
use layer_engine::{
    CudaBuffer, CudaEngine, CudaKernel, CudaQueue, DeviceDescription, DeviceSlice, Engine, EngineError,
    KernelSpec, LaunchContext, Precision,
};

use super::clock::RankClock;
use crate::Error;

/// The [`CudaEngine`] with buffers of NCCL, so that kernels and collectives use the same memory.
#[derive(Debug, Clone)]
pub struct GpuEngine {
    engine: CudaEngine,
    device: usize,
    clock: Option<Arc<RankClock>>,
}

impl GpuEngine {
    /// Creates an engine on the CUDA device with this number, from 0. On emulated GPUs it has a
    /// virtual time that no other rank shares.
    ///
    /// # Errors
    /// [`EngineError::Device`] if there is no CUDA driver or no such device.
    pub fn new(device: usize) -> Result<Self, EngineError> {
        let clock = clocks_of(1)?.pop();
        Ok(Self { engine: CudaEngine::new(device)?, device, clock })
    }

    /// Creates an engine on each of the CUDA devices `0..ranks`, for ranks that are threads of this
    /// process. On emulated GPUs they share one virtual time.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_ranks(ranks: usize) -> Result<Vec<Self>, EngineError> {
        let mut clocks = clocks_of(ranks)?.into_iter();
        let engine = |device| Ok(Self { engine: CudaEngine::new(device)?, device, clock: clocks.next() });
        (0..ranks).map(engine).collect()
    }

    /// Returns the virtual time as this rank's thread uses it; `None` on real GPUs.
    pub(super) fn clock(&self) -> Option<&Arc<RankClock>> {
        self.clock.as_ref()
    }

    /// Number of the CUDA device, from 0.
    pub(super) fn device(&self) -> usize {
        self.device
    }

    /// The wrapped engine, whose own buffers are not buffers of NCCL.
    pub(super) fn cuda(&self) -> &CudaEngine {
        &self.engine
    }
}

/// Returns the virtual time of emulated devices for each rank of this process; empty for real
/// devices.
fn clocks_of(ranks: usize) -> Result<Vec<Arc<RankClock>>, EngineError> {
    let clocks = RankClock::of_ranks(ranks).map_err(|error| EngineError::Device {
        device: "emulated GPUs".to_owned(),
        problem: error.to_string(),
    })?;
    Ok(clocks.into_iter().flatten().map(Arc::new).collect())
}

impl Engine for GpuEngine {
    type Scalar = f32;
    type Buffer = NcclBuffer<f32>;
    type Queue = CudaQueue;
    /// Shared with the launches that use it.
    type Kernel = Arc<CudaKernel>;

    fn describe(&self) -> DeviceDescription {
        self.engine.describe()
    }

    fn allocate(&self, elements: usize) -> Result<NcclBuffer<f32>, EngineError> {
        Ok(shared(self.engine.allocate(elements)?))
    }

    fn queue(&self) -> Result<CudaQueue, EngineError> {
        self.engine.queue()
    }

    fn upload(
        &self,
        host: &[f32],
        buffer: &mut NcclBuffer<f32>,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the buffer is memory of the device, and borrowed by nobody else.
        unsafe { self.engine.upload_raw(host, slice(buffer), queue) }
    }

    fn download(
        &self,
        buffer: &NcclBuffer<f32>,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the buffer is memory of the device; collectives that write to it own it until
        // they are complete.
        unsafe { self.engine.download_raw(slice(buffer), host, queue) }
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Arc<CudaKernel>, EngineError> {
        self.engine.prepare(spec, precision).map(Arc::new)
    }

    fn enqueue(
        &self,
        kernel: &mut Arc<CudaKernel>,
        reads: &[&NcclBuffer<f32>],
        writes: &mut [&mut NcclBuffer<f32>],
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        let reads: Vec<DeviceSlice> = reads.iter().map(|buffer| slice(buffer)).collect();
        let writes: Vec<DeviceSlice> = writes.iter().map(|buffer| slice(buffer)).collect();
        // SAFETY: buffers are memory of the device; those that are written are borrowed by nobody
        // else. The engine's memory is freed when all work of the device is done, and NCCL's behind
        // a collective that began after the kernels that use it.
        unsafe { self.engine.enqueue_raw(kernel, &reads, &writes, context, queue) }
    }

    fn synchronize(&self, queue: &mut CudaQueue) -> Result<(), EngineError> {
        self.engine.synchronize(queue)
    }
}

/// Makes the collectives that are enqueued from now on wait, on the device, for the kernels
/// enqueued so far. The host does not wait.
///
/// # Errors
/// [`Error::Collectives`] if CUDA fails.
pub(super) fn order(compute: &CudaQueue, communication: &NcclStream) -> Result<(), Error> {
    // SAFETY: both are streams of the rank's device, in its primary context.
    Ok(unsafe { communication.wait_for(compute.as_raw()) }?)
}

/// Returns the address and the number of elements of a buffer.
pub(super) fn slice(buffer: &NcclBuffer<f32>) -> DeviceSlice {
    DeviceSlice { pointer: buffer.device_pointer(), elements: buffer.len() }
}

/// Converts memory of the engine to a buffer of NCCL, which owns it.
fn shared(memory: CudaBuffer) -> NcclBuffer<f32> {
    let (pointer, elements) = (memory.device_pointer(), memory.len());
    // SAFETY: the memory is the device's, and stays as long as its owner; nothing but the buffer
    // has its address.
    unsafe { NcclBuffer::from_raw(pointer, elements, memory) }
}

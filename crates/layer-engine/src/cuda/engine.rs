//! The CUDA engine.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdevice_attribute, cuDriverGetVersion};

use super::capture::CapturedGraph;
use super::device::Device;
use super::{CudaBuffer, CudaHostBuffer, CudaKernel, CudaQueue, DeviceSlice, NAME, driver_error, prepare};
use crate::{DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision, Stopwatch};

/// Engine that runs layers on an NVIDIA GPU (compute capability 8.0 or newer) in single precision,
/// with the kernels of this crate.
///
/// The CUDA driver is opened at run time; no CUDA toolkit is needed. If the environment variable
/// `DEEPPOOL_EMULATED_GPUS` is set, the crate `cuda-emulator` takes the place of the CUDA driver.
///
/// Results equal those of [`CpuEngine`](crate::CpuEngine) up to rounding, with the same dropout
/// masks. They are bitwise reproducible: the order of sums depends only on shapes. Differences from
/// `CpuEngine`:
/// - Labels and tokens are not checked, because a check would have to wait for the device. An
///   invalid label gives a loss of NaN and otherwise counts as the nearest class. An invalid token
///   is replaced by the nearest one.
/// - An operand has fewer than 2^31 elements.
/// - An error of a kernel is reported by a later call, which names the kernels that were enqueued
///   last. CUDA then refuses all further work of the process on the device.
///
/// Launching allocates nothing. The parameters of a launch do not depend on the [`LaunchContext`],
/// which is stored in memory of the queue, so a captured launch can be replayed in later iterations
/// (see [`CudaQueue::set_context`]). Do not create or drop buffers and kernels while a stream is
/// captured, except with `cudaStreamCaptureModeRelaxed`.
///
/// A clone shares the device and its modules.
#[derive(Debug, Clone)]
pub struct CudaEngine {
    device: Device,
}

impl CudaEngine {
    /// Creates an engine on the device with this number, counted from 0. It uses the device's
    /// primary context, as the CUDA runtime and other libraries do.
    ///
    /// # Errors
    /// [`EngineError::Device`] if there is no CUDA driver or no such device.
    pub fn new(ordinal: usize) -> Result<Self, EngineError> {
        Ok(Self { device: Device::open(ordinal)? })
    }

    /// Creates an engine on an opened device.
    #[cfg(test)]
    pub(super) fn with_device(device: Device) -> Self {
        Self { device }
    }

    /// Creates a queue with a priority. Work of queues with lower numbers runs first; the CUDA
    /// driver clamps the number to its range. [`Engine::queue`] has priority 0.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the device cannot create it.
    pub fn queue_with_priority(&self, priority: i32) -> Result<CudaQueue, EngineError> {
        CudaQueue::new(&self.device, priority)
    }

    /// Creates a queue on an existing stream, a `CUstream` or `cudaStream_t`. The queue does not
    /// destroy the stream.
    ///
    /// # Errors
    /// If allocation of the launch context fails.
    ///
    /// # Safety
    /// The stream belongs to this device's primary context and outlives the queue.
    pub unsafe fn queue_on(&self, stream: *mut c_void) -> Result<CudaQueue, EngineError> {
        CudaQueue::borrowed(&self.device, stream.cast())
    }

    /// Does the work of [`enqueue`](Engine::enqueue) on memory that the engine does not own.
    ///
    /// # Errors
    /// As [`enqueue`](Engine::enqueue).
    ///
    /// # Safety
    /// The slices are memory of this device, aligned to 4 bytes, and stay valid until the work is
    /// complete, or as long as the graph is used if the queue is being captured. Written memory
    /// does not overlap any other operand, and nothing else accesses it during the work.
    pub unsafe fn enqueue_raw(
        &self,
        kernel: &CudaKernel,
        reads: &[DeviceSlice],
        writes: &[DeviceSlice],
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: guaranteed by the caller.
        unsafe { kernel.launch(&reads.iter().copied(), &writes.iter().copied(), context, queue) }
    }

    /// Allocates `elements` zeros in page-locked host memory, for asynchronous copies.
    ///
    /// # Errors
    /// [`EngineError::Library`] if allocation fails.
    pub fn host_memory(&self, elements: usize) -> Result<CudaHostBuffer, EngineError> {
        CudaHostBuffer::new(&self.device, elements)
    }

    /// Enqueues a copy of the whole host buffer to the start of a slice, without waiting for it.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the slice is shorter than the host buffer;
    /// [`EngineError::Library`] if CUDA fails.
    ///
    /// # Safety
    /// Both stay valid until the copy is complete. Until then nothing else writes to either or
    /// reads the slice.
    pub unsafe fn enqueue_upload(
        &self,
        host: &CudaHostBuffer,
        to: DeviceSlice,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.copy_to_device(host.as_slice(), to, queue) }
    }

    /// Enqueues a copy of the start of a slice to the whole host buffer, without waiting for it.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the slice is shorter than the host buffer;
    /// [`EngineError::Library`] if CUDA fails.
    ///
    /// # Safety
    /// Both stay valid until the copy is complete. Until then nothing else writes to the slice or
    /// accesses the host memory.
    pub unsafe fn enqueue_download(
        &self,
        from: DeviceSlice,
        host: &mut CudaHostBuffer,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.copy_from_device(from, host.as_mut_slice(), queue) }
    }

    /// Does the work of [`upload`](Engine::upload) to memory that the engine does not own.
    ///
    /// # Errors
    /// As [`upload`](Engine::upload).
    ///
    /// # Safety
    /// The slice is memory of this device, and nothing else accesses it during the call.
    pub unsafe fn upload_raw(
        &self,
        host: &[f32],
        to: DeviceSlice,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the caller guarantees the slice; `host` stays valid because the function waits
        // for the copy.
        unsafe { self.copy_to_device(host, to, queue) }?;
        if host.is_empty() { Ok(()) } else { queue.synchronize() }
    }

    /// Does the work of [`download`](Engine::download) from memory that the engine does not own.
    ///
    /// # Errors
    /// As [`download`](Engine::download).
    ///
    /// # Safety
    /// The slice is memory of this device, and nothing else writes to it during the call.
    pub unsafe fn download_raw(
        &self,
        from: DeviceSlice,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the caller guarantees the slice; `host` stays valid because the function waits
        // for the copy.
        unsafe { self.copy_from_device(from, host, queue) }?;
        if host.is_empty() { Ok(()) } else { queue.synchronize() }
    }

    /// Enqueues a copy to the device.
    ///
    /// # Safety
    /// Both stay valid until the copy is complete. Until then nothing else writes to either or
    /// reads the slice.
    unsafe fn copy_to_device(
        &self,
        host: &[f32],
        to: DeviceSlice,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        check_length("upload", host.len(), to.elements)?;
        if host.is_empty() {
            return Ok(());
        }
        let copy = |error| driver_error("copy to the device", error);
        self.device.bind().map_err(copy)?;
        // SAFETY: the memory is at least as long as `host`, and the caller guarantees that it is
        // valid.
        unsafe { result::memcpy_htod_async(to.pointer, host, queue.stream()) }.map_err(copy)
    }

    /// Enqueues a copy from the device.
    ///
    /// # Safety
    /// Both stay valid until the copy is complete. Until then nothing else writes to the slice or
    /// accesses the host memory.
    unsafe fn copy_from_device(
        &self,
        from: DeviceSlice,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        check_length("download", host.len(), from.elements)?;
        if host.is_empty() {
            return Ok(());
        }
        let copied = self.device.bind().and_then(|()| {
            // SAFETY: the memory is at least as long as `host`, and the caller guarantees that it
            // is valid.
            unsafe { result::memcpy_dtoh_async(host, from.pointer, queue.stream()) }
        });
        copied.map_err(|error| queue.queue_error("copy from the device", error))
    }
}

impl Engine for CudaEngine {
    type Scalar = f32;
    type Buffer = CudaBuffer;
    type Queue = CudaQueue;
    type Kernel = CudaKernel;

    fn describe(&self) -> DeviceDescription {
        let name = self.device.context().name();
        let mut version = 0;
        // SAFETY: the call writes the version.
        let known = unsafe { cuDriverGetVersion(&raw mut version) }.result();
        let libraries = known.map(|()| ("CUDA of the driver".to_owned(), version.to_string())).into_iter();
        let clock_khz = self.device.attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
        DeviceDescription {
            name: name.unwrap_or_else(|_| format!("CUDA device {}", self.device.context().ordinal())),
            libraries: libraries.collect::<BTreeMap<_, _>>(),
            clock_mhz: clock_khz.map(|clock| clock / 1000),
        }
    }

    fn allocate(&self, elements: usize) -> Result<CudaBuffer, EngineError> {
        CudaBuffer::zeros(&self.device, elements)
    }

    fn queue(&self) -> Result<CudaQueue, EngineError> {
        self.queue_with_priority(0)
    }

    fn upload(
        &self,
        host: &[f32],
        buffer: &mut CudaBuffer,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the buffer is device memory and exclusively borrowed.
        unsafe { self.upload_raw(host, buffer.as_slice(), queue) }
    }

    fn download(
        &self,
        buffer: &CudaBuffer,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the buffer is device memory, and all work that writes to it was enqueued before.
        unsafe { self.download_raw(buffer.as_slice(), host, queue) }
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<CudaKernel, EngineError> {
        if precision != Precision::F32 {
            return Err(EngineError::Precision { engine: NAME, precision });
        }
        prepare::kernel(&self.device, spec)
    }

    fn enqueue(
        &self,
        kernel: &mut CudaKernel,
        reads: &[&CudaBuffer],
        writes: &mut [&mut CudaBuffer],
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        let reads = reads.iter().map(|buffer| buffer.as_slice());
        let writes = writes.iter().map(|buffer| buffer.as_slice());
        // SAFETY: buffers are device memory, and dropping them waits for all work.
        unsafe { kernel.launch(&reads, &writes, context, queue) }
    }

    fn synchronize(&self, queue: &mut CudaQueue) -> Result<(), EngineError> {
        queue.synchronize()
    }

    /// Runs `body` once without capturing it, which loads its kernels and sets the queue's context;
    /// then captures it into a graph and times replays of the graph by device events. `body` must
    /// not wait, and its effect must not depend on host state that changes from run to run.
    fn time(
        &self,
        queue: &mut CudaQueue,
        body: &mut dyn FnMut(&mut CudaQueue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        body(queue)?;
        queue.synchronize()?;
        let captured = CapturedGraph::new(queue, body)?;
        // The first launch of a graph also uploads it to the device.
        captured.time(queue, 1)?;
        measure(&mut |rounds| captured.time(queue, rounds))
    }
}

fn check_length(kernel: &str, wanted: usize, got: usize) -> Result<(), EngineError> {
    if wanted <= got {
        return Ok(());
    }
    let (kernel, operand) = (kernel.into(), "buffer".into());
    Err(EngineError::Operand { kernel, operand, expected: wanted, got })
}

#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;

use cudarc::driver::result;
use cudarc::driver::sys::{CUdevice_attribute, cuDriverGetVersion};

use super::capture::Captured;
use super::device::Device;
use super::{CudaBuffer, CudaHostBuffer, CudaKernel, CudaQueue, DeviceSlice, NAME, failed, prepare};
use crate::{DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision, Stopwatch};

/// Runs layers on an NVIDIA GPU (of compute capability 8.0 or newer) in single precision, by kernels of its own.
///
/// CUDA's driver is opened at run time; nothing is compiled. With `DEEPPOOL_EMULATED_GPUS` set, `cuda-emulator` is opened in its place.
///
/// It computes what [`CpuEngine`](crate::CpuEngine) computes, with the same masks of dropout and to the usual rounding. The same work gives
/// the same bits every time: sums are in a fixed order, which depends on shapes alone. The differences:
/// - It is not checked whether a label is a class, which would have to wait for the device: one that is not gives a loss of NaN, and counts
///   as the nearest class otherwise. Nor whether an input of an embedding is a token: one that is not is taken for the nearest.
/// - An operand has less than 2^31 elements.
/// - An error of a kernel is that of a later call: it names the kernels that were enqueued last. CUDA then refuses all further work of
///   the process on the device.
///
/// A launch allocates nothing, and its parameters do not depend on the [`LaunchContext`], which is in the queue's memory: a captured launch
/// may be repeated in other iterations (see [`CudaQueue::set_context`]). Buffers and kernels are not to be made or dropped while a stream
/// is captured, unless in the relaxed mode.
///
/// A clone shares the device and its code.
#[derive(Debug, Clone)]
pub struct CudaEngine {
    device: Device,
}

impl CudaEngine {
    /// An engine on the device of this number, counted from 0. It uses the device's primary context, as CUDA's runtime and other libraries do.
    ///
    /// # Errors
    /// [`EngineError::Device`], in one line, when there is no driver or no such device.
    pub fn new(ordinal: usize) -> Result<Self, EngineError> {
        Ok(Self { device: Device::open(ordinal)? })
    }

    #[cfg(test)]
    pub(super) fn of(device: Device) -> Self {
        Self { device }
    }

    /// A queue with a priority: work of lower numbers runs first where both wait; [`Engine::queue`] has 0.
    ///
    /// # Errors
    /// When the device refuses it.
    pub fn queue_with_priority(&self, priority: i32) -> Result<CudaQueue, EngineError> {
        CudaQueue::new(&self.device, priority)
    }

    /// A queue on somebody else's stream, a `CUstream` or `cudaStream_t`, which it does not destroy.
    ///
    /// # Errors
    /// When there is no memory for the launch context.
    ///
    /// # Safety
    /// The stream is one of this device, in its primary context, and lives as long as the queue.
    pub unsafe fn queue_on(&self, stream: *mut c_void) -> Result<CudaQueue, EngineError> {
        CudaQueue::borrowed(&self.device, stream.cast())
    }

    /// [`enqueue`](Engine::enqueue), on memory of somebody else's.
    ///
    /// # Errors
    /// As [`enqueue`](Engine::enqueue).
    ///
    /// # Safety
    /// The slices are memory of this device, aligned to 4 bytes, that lives until the work is done; if the queue is captured, as long as
    /// the graph is used. What is written overlaps with nothing else that the kernel uses, and nothing else uses it meanwhile.
    pub unsafe fn enqueue_raw(
        &self,
        kernel: &CudaKernel,
        reads: &[DeviceSlice],
        writes: &[DeviceSlice],
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: as the caller promises.
        unsafe { kernel.launch(&reads.iter().copied(), &writes.iter().copied(), context, queue) }
    }

    /// Memory of the host's for copies that nobody waits for.
    ///
    /// # Errors
    /// When there is none.
    pub fn host_memory(&self, elements: usize) -> Result<CudaHostBuffer, EngineError> {
        CudaHostBuffer::new(&self.device, elements)
    }

    /// Enqueues a copy from the host, and does not wait for it.
    ///
    /// # Errors
    /// When the lengths differ, and what CUDA reports.
    ///
    /// # Safety
    /// Both stay until the copy is done, and nothing else writes to either, or reads the slice, meanwhile.
    pub unsafe fn enqueue_upload(
        &self,
        host: &CudaHostBuffer,
        to: DeviceSlice,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: as the caller promises.
        unsafe { self.copy_to_device(host.as_slice(), to, queue) }
    }

    /// Enqueues a copy to the host, and does not wait for it.
    ///
    /// # Errors
    /// When the lengths differ, and what CUDA reports.
    ///
    /// # Safety
    /// Both stay until the copy is done; nothing else writes to the slice, or uses the host's memory, meanwhile.
    pub unsafe fn enqueue_download(
        &self,
        from: DeviceSlice,
        host: &mut CudaHostBuffer,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: as the caller promises.
        unsafe { self.copy_from_device(from, host.as_mut_slice(), queue) }
    }

    /// [`upload`](Engine::upload), to memory of somebody else's.
    ///
    /// # Errors
    /// As [`upload`](Engine::upload).
    ///
    /// # Safety
    /// The slice is memory of this device that nothing else uses meanwhile.
    pub unsafe fn upload_raw(
        &self,
        host: &[f32],
        to: DeviceSlice,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the slice is as the caller promises; the elements stay, since the copy is waited for.
        unsafe { self.copy_to_device(host, to, queue) }?;
        if host.is_empty() { Ok(()) } else { queue.synchronize() }
    }

    /// [`download`](Engine::download), from memory of somebody else's.
    ///
    /// # Errors
    /// As [`download`](Engine::download).
    ///
    /// # Safety
    /// The slice is memory of this device that nothing else writes to meanwhile.
    pub unsafe fn download_raw(
        &self,
        from: DeviceSlice,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the slice is as the caller promises; the host's memory stays, since the copy is waited for.
        unsafe { self.copy_from_device(from, host, queue) }?;
        if host.is_empty() { Ok(()) } else { queue.synchronize() }
    }

    /// Enqueues a copy to the device.
    ///
    /// # Safety
    /// Both are there until it is done, and nothing else writes to either, or reads the slice, meanwhile.
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
        let copy = |error| failed("copy to the device", error);
        self.device.bind().map_err(copy)?;
        // SAFETY: the memory is as long as the elements, and is there as the caller promises.
        unsafe { result::memcpy_htod_async(to.pointer, host, queue.stream()) }.map_err(copy)
    }

    /// Enqueues a copy from the device.
    ///
    /// # Safety
    /// Both are there until it is done; nothing else writes to the slice, or uses the host's memory, meanwhile.
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
            // SAFETY: the memory is as long as the elements, and is there as the caller promises.
            unsafe { result::memcpy_dtoh_async(host, from.pointer, queue.stream()) }
        });
        copied.map_err(|error| queue.blame("copy from the device", error))
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
        // SAFETY: the version is written.
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

    fn reuse(&self, buffer: &mut CudaBuffer, elements: usize, _: &mut CudaQueue) -> Result<(), EngineError> {
        buffer.reuse(&self.device, elements)
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
        // SAFETY: the buffer is the device's, and borrowed by nobody else.
        unsafe { self.upload_raw(host, buffer.as_slice(), queue) }
    }

    fn download(
        &self,
        buffer: &CudaBuffer,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        // SAFETY: the buffer is the device's, and what is enqueued to write to it has been before.
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
        // SAFETY: buffers are memory of the device, whose drop waits for all work.
        unsafe { kernel.launch(&reads, &writes, context, queue) }
    }

    fn synchronize(&self, queue: &mut CudaQueue) -> Result<(), EngineError> {
        queue.synchronize()
    }

    /// Runs `body` once without capturing it, so that what it needs is loaded and the queue's context set; then captures it into a graph,
    /// and times replays of this by the device's events. `body` may wait for nothing, and changes nothing of the host's that matters to
    /// it from run to run.
    fn time(
        &self,
        queue: &mut CudaQueue,
        body: &mut dyn FnMut(&mut CudaQueue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        body(queue)?;
        queue.synchronize()?;
        let captured = Captured::new(queue, body)?;
        // The first launch of a graph also sends it to the device.
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

//! The libtorch engine.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::time::Duration;

use layer_graph::Layer;
use tch::{Device, Kind};

use super::buffer::TorchBuffer;
use super::capture::{Capture, device_synchronize};
use super::dtypes::DTypes;
use super::ffi::{self, Stream};
use super::kernel::TorchKernel;
use super::queue::TorchQueue;
use super::{Failure, NAME, prepare};
use crate::cpu::processor;
use crate::engine::time_on_host;
use crate::{
    DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision, Real, Role, Stopwatch,
    Storage,
};

/// Version of libtorch that the crate is built for.
const LIBTORCH: &str = "2.11.0";

/// Device of a [`TorchEngine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TorchDevice {
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU with this index, counted from 0.
    Cuda(usize),
}

/// Engine that runs layers with libtorch, the C++ library of PyTorch, for comparison and for
/// training on GPUs.
///
/// Its scalar is `f32` or `f64`. `TorchEngine<f32>` also computes in [`Precision::Bf16`]:
/// convolutions, linear layers and attention convert their operands to 16 bits, sum in single
/// precision, round the result to 16 bits and return it in single precision. All other kinds
/// compute in single precision. In [`Precision::F32`], GPUs do not round to TF32.
///
/// Results equal those of [`CpuEngine`](crate::CpuEngine) up to rounding, with these differences:
/// - A launch allocates from libtorch's cache. In a captured graph the memory belongs to the graph.
/// - On the CPU its threads are shared by the whole process: libtorch has one number of threads.
/// - Dropout masks are drawn on the host like those of the CPU engine, and copied to the device
///   once per iteration for each direction.
/// - On a GPU labels and tokens are not checked, because a check would have to wait for the device.
///   An invalid label gives a loss of NaN. An invalid token is replaced by the nearest one.
#[derive(Debug, Clone)]
pub struct TorchEngine<T> {
    device: TorchDevice,
    threads: Option<usize>,
    scalar: PhantomData<T>,
}

impl<T: Real> TorchEngine<T> {
    /// Creates an engine on a device.
    ///
    /// # Errors
    /// [`EngineError::Device`] if there is no such GPU, or libtorch cannot use it.
    pub fn new(device: TorchDevice) -> Result<Self, EngineError> {
        if let TorchDevice::Cuda(index) = device {
            let unusable = |problem| EngineError::Device { device: format!("CUDA device {index}"), problem };
            let devices = ffi::cuda_devices().map_err(|Failure(error)| match error {
                EngineError::Library { problem, .. } => unusable(format!(
                    "{problem}; `scripts/libtorch.sh --cuda` fetches what libtorch needs on a GPU"
                )),
                other => other,
            })?;
            if index >= devices {
                return Err(unusable(format!("libtorch has {devices} CUDA devices")));
            }
        }
        Ok(Self { device, threads: None, scalar: PhantomData })
    }

    /// Creates an engine on the CPU that uses `threads` threads. libtorch has one number of threads
    /// for the process.
    ///
    /// # Errors
    /// [`EngineError::Threads`] if `threads` is 0 or 2^31 or more.
    pub fn with_threads(threads: usize) -> Result<Self, EngineError> {
        let refused = |problem: &str| EngineError::Threads { threads, problem: problem.into() };
        if threads == 0 {
            return Err(refused("at least one is needed"));
        }
        let count = i32::try_from(threads).map_err(|_| refused("too many"))?;
        tch::set_num_threads(count);
        Ok(Self { device: TorchDevice::Cpu, threads: Some(threads), scalar: PhantomData })
    }

    /// Creates a queue with a priority. Work of queues with lower numbers runs first.
    /// [`Engine::queue`] has priority 0. On the CPU the priority has no effect.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the device cannot create it.
    pub fn queue_with_priority(&self, priority: i8) -> Result<TorchQueue, EngineError> {
        let stream = self.cuda_index().map(|index| Stream::new(index, priority.into())).transpose();
        to_engine_error(stream.map(TorchQueue::new))
    }

    fn cuda_index(&self) -> Option<c_int> {
        match self.device {
            TorchDevice::Cpu => None,
            TorchDevice::Cuda(index) => Some(index as c_int),
        }
    }

    fn tch_device(&self) -> Device {
        match self.device {
            TorchDevice::Cpu => Device::Cpu,
            TorchDevice::Cuda(index) => Device::Cuda(index),
        }
    }

    /// Creates something in device memory outside of all queues. Waits for the device before,
    /// because a queue may still use recycled memory, and after, so that every queue sees the
    /// result.
    fn while_idle<R>(&self, make: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
        let Some(index) = self.cuda_index() else { return make() };
        device_synchronize(index)?;
        let made = make()?;
        device_synchronize(index)?;
        Ok(made)
    }

    fn kind() -> Kind {
        if T::PRECISION == Precision::F64 { Kind::Double } else { Kind::Float }
    }
}

impl<T: Real> Engine for TorchEngine<T> {
    type Scalar = T;
    type Buffer = TorchBuffer;
    type Queue = TorchQueue;
    type Kernel = TorchKernel;

    fn describe(&self) -> DeviceDescription {
        let mut libraries = BTreeMap::from([("libtorch".to_owned(), LIBTORCH.to_owned())]);
        if let Some(index) = self.cuda_index() {
            let Ok(device) = ffi::cuda_describe(index) else {
                return DeviceDescription {
                    name: format!("CUDA device {index}"),
                    libraries,
                    clock_mhz: None,
                };
            };
            let versions = ["cuDNN", "CUDA", "CUDA of the driver"].into_iter().zip(device.versions);
            libraries
                .extend(versions.filter_map(|(name, version)| Some((name.into(), version?.to_string()))));
            let clock_mhz = device.clock_khz.map(|clock| clock / 1000);
            return DeviceDescription { name: device.name, libraries, clock_mhz };
        }
        let threads = self.threads.unwrap_or_else(|| usize::try_from(tch::get_num_threads()).unwrap_or(1));
        let processor = processor::describe(threads);
        libraries.extend(processor.libraries);
        DeviceDescription { libraries, ..processor }
    }

    fn allocate(&self, elements: usize) -> Result<TorchBuffer, EngineError> {
        to_engine_error(self.while_idle(|| TorchBuffer::zeros(elements, Self::kind(), self.tch_device())))
    }

    fn queue(&self) -> Result<TorchQueue, EngineError> {
        self.queue_with_priority(0)
    }

    fn upload(
        &self,
        host: &[T],
        buffer: &mut TorchBuffer,
        queue: &mut TorchQueue,
    ) -> Result<(), EngineError> {
        check_length("upload", host.len(), buffer)?;
        let _entered = to_engine_error(queue.enter())?;
        to_engine_error(buffer.upload(host, Self::kind(), self.tch_device()))
    }

    fn download(
        &self,
        buffer: &TorchBuffer,
        host: &mut [T],
        queue: &mut TorchQueue,
    ) -> Result<(), EngineError> {
        check_length("download", host.len(), buffer)?;
        if host.is_empty() {
            return Ok(());
        }
        let _entered = to_engine_error(queue.enter())?;
        to_engine_error(buffer.flat().and_then(|flat| ffi::copy_to_host(&flat, host, Self::kind())))
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<TorchKernel, EngineError> {
        let compute = match (T::PRECISION, precision) {
            (Precision::F32, Precision::Bf16) => Kind::BFloat16,
            (own, wanted) if own == wanted => Self::kind(),
            _ => return Err(EngineError::Precision { engine: NAME, precision }),
        };
        let dtypes = DTypes { kind: Self::kind(), compute, device: self.tch_device() };
        to_engine_error(self.while_idle(|| prepare::kernel(spec, dtypes)))
    }

    /// Buffers hold the scalar of the engine in every precision.
    fn storage(&self, _: Role, _: &Layer, _: Precision) -> Storage {
        Storage::Scalar
    }

    fn enqueue(
        &self,
        kernel: &mut TorchKernel,
        reads: &[&TorchBuffer],
        writes: &mut [&mut TorchBuffer],
        context: &LaunchContext,
        queue: &mut TorchQueue,
    ) -> Result<(), EngineError> {
        if let Some(threads) = self.threads {
            // libtorch's number of threads is per calling thread, and another engine may have
            // changed it.
            if usize::try_from(tch::get_num_threads()) != Ok(threads) {
                tch::set_num_threads(threads as i32);
            }
        }
        let _entered = to_engine_error(queue.enter())?;
        to_engine_error(kernel.launch(reads, writes, context))
    }

    fn synchronize(&self, queue: &mut TorchQueue) -> Result<(), EngineError> {
        queue.stream().map_or(Ok(()), |stream| to_engine_error(stream.synchronize()))
    }

    /// On a GPU: runs `body` once without capturing it, so that libraries are loaded and algorithms
    /// chosen; then captures it into a graph and times replays of the graph by device events.
    /// `body` must not wait for anything except its queue, and its effect must not depend on host
    /// state that changes from run to run.
    fn time(
        &self,
        queue: &mut TorchQueue,
        body: &mut dyn FnMut(&mut TorchQueue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let Some(stream) = queue.stream() else {
            return time_on_host(self, queue, body, measure);
        };
        body(queue)?;
        self.synchronize(queue)?;
        let _entered = to_engine_error(stream.enter())?;
        let capture = to_engine_error(Capture::begin())?;
        let captured = body(queue);
        let graph = to_engine_error(capture.end());
        captured?;
        let mut graph = graph?;
        // The first launch of a graph also uploads it to the device.
        to_engine_error(graph.time(stream, 1))?;
        measure(&mut |rounds| {
            let milliseconds = to_engine_error(graph.time(stream, rounds))?;
            Ok(Duration::from_secs_f64(milliseconds / 1e3))
        })
    }
}

/// Converts a failure to the public error.
fn to_engine_error<R>(result: Result<R, Failure>) -> Result<R, EngineError> {
    result.map_err(|Failure(error)| error)
}

fn check_length(kernel: &str, wanted: usize, buffer: &TorchBuffer) -> Result<(), EngineError> {
    if wanted <= buffer.len() {
        return Ok(());
    }
    let (kernel, operand) = (kernel.into(), "buffer".into());
    Err(EngineError::Operand { kernel, operand, expected: wanted, got: buffer.len() })
}

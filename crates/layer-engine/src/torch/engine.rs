use std::collections::BTreeMap;
use std::ffi::c_int;
use std::marker::PhantomData;
use std::time::Duration;

use tch::{Device, Kind};

use super::buffer::TorchBuffer;
use super::capture::{Capture, device_synchronize};
use super::ffi::{self, Stream};
use super::kernel::TorchKernel;
use super::numbers::Numbers;
use super::queue::TorchQueue;
use super::{Failure, NAME, prepare};
use crate::cpu::processor;
use crate::engine::time_by_the_host;
use crate::{DeviceDescription, Engine, EngineError, KernelSpec, LaunchContext, Precision, Real, Stopwatch};

/// The libtorch that the crate is built for.
const LIBTORCH: &str = "2.11.0";

/// Where a [`TorchEngine`] works.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TorchDevice {
    /// The CPU.
    Cpu,
    /// The NVIDIA GPU of this index.
    Cuda(usize),
}

/// Runs layers by libtorch, the C++ library of PyTorch, to compare with and to train on
/// GPUs.
///
/// Its scalar is `f32` or `f64`. `TorchEngine<f32>` also computes in [`Precision::Bf16`]: convolutions, linear layers and
/// attention convert their operands to 16 bits, sum in single precision, and give their results, which have been rounded to
/// 16 bits once, in single precision again; all other kinds compute in single precision. In [`Precision::F32`] GPUs do not
/// round to TF32.
///
/// It computes what [`CpuEngine`](crate::CpuEngine) computes, with these differences:
/// - A launch takes memory from libtorch's cache, and gives it back. In a captured graph it is the graph's.
/// - On the CPU its threads are the process's: libtorch has one number of threads for all.
/// - The masks of dropout are drawn on the host, as the CPU engine draws them, and copied to the device once an iteration.
/// - On a GPU it is not checked whether a label is a class, which would have to wait for the device: one that is not gives a loss of NaN. Nor
///   whether an input of an embedding is a token: one that is not is taken for the nearest.
#[derive(Debug, Clone)]
pub struct TorchEngine<T> {
    device: TorchDevice,
    threads: Option<usize>,
    scalar: PhantomData<T>,
}

impl<T: Real> TorchEngine<T> {
    /// An engine on a device.
    ///
    /// # Errors
    /// [`EngineError::Device`] when there is no such GPU, or when libtorch cannot use it.
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
                return Err(unusable(format!("libtorch sees {devices} CUDA devices")));
            }
        }
        Ok(Self { device, threads: None, scalar: PhantomData })
    }

    /// An engine on the CPU whose work is spread over this many threads: of libtorch, which has one number for the process.
    ///
    /// # Errors
    /// [`EngineError::Threads`] when `threads` is 0 or more than libtorch can count.
    pub fn with_threads(threads: usize) -> Result<Self, EngineError> {
        let refused = |problem: &str| EngineError::Threads { threads, problem: problem.into() };
        if threads == 0 {
            return Err(refused("work needs at least one"));
        }
        let count = i32::try_from(threads).map_err(|_| refused("too many"))?;
        tch::set_num_threads(count);
        Ok(Self { device: TorchDevice::Cpu, threads: Some(threads), scalar: PhantomData })
    }

    /// A queue with a priority, as a CUDA stream has: work of lower numbers runs first where both wait; [`Engine::queue`] has 0.
    /// On the CPU it makes no difference.
    ///
    /// # Errors
    /// When the device refuses it.
    pub fn queue_with_priority(&self, priority: i8) -> Result<TorchQueue, EngineError> {
        let stream = self.cuda_index().map(|index| Stream::new(index, priority.into())).transpose();
        outward(stream.map(TorchQueue::new))
    }

    fn cuda_index(&self) -> Option<c_int> {
        match self.device {
            TorchDevice::Cpu => None,
            TorchDevice::Cuda(index) => Some(index as c_int),
        }
    }

    fn place(&self) -> Device {
        match self.device {
            TorchDevice::Cpu => Device::Cpu,
            TorchDevice::Cuda(index) => Device::Cuda(index),
        }
    }

    /// Makes something in the device's memory outside of all queues. On a GPU the memory may have been something else's
    /// that a queue still works on, and a queue is not to begin before this is there.
    fn between_queues<R>(&self, make: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
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
        outward(self.between_queues(|| TorchBuffer::zeros(elements, Self::kind(), self.place())))
    }

    fn reuse(
        &self,
        buffer: &mut TorchBuffer,
        elements: usize,
        queue: &mut TorchQueue,
    ) -> Result<(), EngineError> {
        let _entered = outward(queue.enter())?;
        outward(buffer.reuse(elements, Self::kind(), self.place()))
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
        let _entered = outward(queue.enter())?;
        outward(buffer.upload(host, Self::kind(), self.place()))
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
        let _entered = outward(queue.enter())?;
        outward(buffer.flat().and_then(|flat| ffi::copy_to_host(&flat, host, Self::kind())))
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<TorchKernel, EngineError> {
        let compute = match (T::PRECISION, precision) {
            (Precision::F32, Precision::Bf16) => Kind::BFloat16,
            (own, wanted) if own == wanted => Self::kind(),
            _ => return Err(EngineError::Precision { engine: NAME, precision }),
        };
        let numbers = Numbers { kind: Self::kind(), compute, device: self.place() };
        outward(self.between_queues(|| prepare::kernel(spec, numbers)))
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
            // The number of threads is each calling thread's own, and another engine may have changed it.
            if usize::try_from(tch::get_num_threads()) != Ok(threads) {
                tch::set_num_threads(threads as i32);
            }
        }
        let _entered = outward(queue.enter())?;
        outward(kernel.launch(reads, writes, context))
    }

    fn synchronize(&self, queue: &mut TorchQueue) -> Result<(), EngineError> {
        queue.stream().map_or(Ok(()), |stream| outward(stream.synchronize()))
    }

    /// On a GPU: runs `body` once without capturing it, so that libraries are loaded and algorithms chosen; then captures it into a graph, and
    /// times replays of this by the device's events. `body` may wait for nothing but its queue, and changes nothing of the
    /// host's that matters to it from run to run.
    fn time(
        &self,
        queue: &mut TorchQueue,
        body: &mut dyn FnMut(&mut TorchQueue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let Some(stream) = queue.stream() else {
            return time_by_the_host(self, queue, body, measure);
        };
        body(queue)?;
        self.synchronize(queue)?;
        let _entered = outward(stream.enter())?;
        let capture = outward(Capture::begin())?;
        let captured = body(queue);
        let graph = outward(capture.end());
        captured?;
        let mut graph = graph?;
        // The first launch of a graph also sends it to the device.
        outward(graph.time(stream, 1))?;
        measure(&mut |rounds| {
            let milliseconds = outward(graph.time(stream, rounds))?;
            Ok(Duration::from_secs_f64(milliseconds / 1e3))
        })
    }
}

/// The error that a caller gets for a failure.
fn outward<R>(result: Result<R, Failure>) -> Result<R, EngineError> {
    result.map_err(|Failure(error)| error)
}

fn check_length(kernel: &str, wanted: usize, buffer: &TorchBuffer) -> Result<(), EngineError> {
    if wanted <= buffer.len() {
        return Ok(());
    }
    let (kernel, operand) = (kernel.into(), "buffer".into());
    Err(EngineError::Operand { kernel, operand, expected: wanted, got: buffer.len() })
}

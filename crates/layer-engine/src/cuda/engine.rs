//! The CUDA engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use cuda::{Buffer, Context, Determinism, Priority, Stream};

use super::chain::ElementwiseChain;
use super::choice::Choices;
use super::device::Device;
use super::{CudaKernel, CudaQueue, allocation_failed, failed, prepare, timing};
use crate::{
    DeviceDescription, Engine, EngineError, ImageLayout, KernelChoice, KernelPart, KernelSpec, LaunchContext,
    Precision, Stopwatch,
};

/// Engine that runs layers on an NVIDIA GPU (compute capability 8.0 or newer), with operands in
/// single precision or in 16 bits ([`Precision::Bf16`]):
/// convolutions by cuDNN and linear layers by cuBLASLt where they are there and faster than the
/// kernels of this crate (see [`KernelChoice`]), all else by those.
///
/// The CUDA driver is opened at run time; no CUDA toolkit is needed. If the environment variable
/// `DEEPPOOL_EMULATED_GPUS` is set, the crate `cuda-emulator` takes the place of the CUDA driver.
///
/// Results equal those of [`CpuEngine`](crate::CpuEngine) up to rounding, with the same dropout
/// masks. They are bitwise reproducible while the same candidates are chosen, unless
/// [nondeterministic ones](Self::with_nondeterministic) are permitted; with [`KernelChoice::Own`]
/// the order of sums depends only on shapes. Differences from `CpuEngine`:
/// - Labels and tokens are not checked, because a check would have to wait for the device. An
///   invalid label gives a loss of NaN and otherwise counts as the nearest class. An invalid token
///   is replaced by the nearest one.
/// - An operand has fewer than 2^31 elements.
/// - An error of a kernel is reported by a later call, which names the kernels that were enqueued
///   last. CUDA then refuses all further work of the process on the device.
///
/// Launching allocates nothing. The parameters of a launch do not depend on the [`LaunchContext`],
/// which is stored in memory of the queue, so a captured launch can be replayed in later iterations
/// (see [`CudaQueue::set_context`]). A captured graph keeps the memory and the modules that its
/// kernels use. Do not create or drop buffers and kernels while a stream is captured, except with
/// `cudaStreamCaptureModeRelaxed`.
///
/// A clone shares the device and its modules.
#[derive(Debug, Clone)]
pub struct CudaEngine {
    pub(super) device: Device,
}

impl CudaEngine {
    /// Creates an engine on the device with this number, counted from 0. It uses the device's
    /// primary context, as the CUDA runtime and other libraries do.
    ///
    /// # Errors
    /// [`EngineError::Device`] if there is no CUDA driver or no such device.
    pub fn new(ordinal: usize) -> Result<Self, EngineError> {
        let context = Context::open(ordinal).map_err(|error| EngineError::Device {
            device: format!("CUDA device {ordinal}"),
            problem: error.to_string(),
        })?;
        Ok(Self::on(&context))
    }

    /// Creates an engine on an open device.
    #[must_use]
    pub fn on(context: &Context) -> Self {
        let engine = Self { device: Device::new(context) };
        if context.is_emulated() { engine.with_choice(KernelChoice::Vendor) } else { engine }
    }

    /// Returns the engine with a rule by which it chooses how to compute convolutions and products.
    /// The default is [`KernelChoice::Fastest`], or [`KernelChoice::Vendor`] on emulated GPUs,
    /// whose times say nothing about kernels.
    #[must_use]
    pub fn with_choice(mut self, choice: KernelChoice) -> Self {
        self.device.choice = choice;
        self
    }

    /// Returns the engine with or without algorithms of libraries whose results differ from run to
    /// run by rounding. By default it has none.
    #[must_use]
    pub fn with_nondeterministic(mut self, is_permitted: bool) -> Self {
        self.device.determinism = if is_permitted { Determinism::Any } else { Determinism::Deterministic };
        self
    }

    /// Returns the engine with an order of the elements of images and filters in all buffers, by
    /// default [`ImageLayout::ChannelsFirst`]. cuDNN's algorithms for tensor cores
    /// transpose operands with channels first in their workspace.
    ///
    /// With channels last, convolutions need cuDNN. The layers that read or write images are
    /// convolutions, batch and local response normalisations, poolings, dropout, elementwise
    /// activations and sums, concatenations, flattenings, reshapes and permutations. `prepare` of
    /// another one is an [`EngineError::ChannelsLast`]. Dropout masks, and the order of the
    /// elements of a flattened image, are those of channels first.
    #[must_use]
    pub fn with_image_layout(mut self, layout: ImageLayout) -> Self {
        self.device.image_layout = layout;
        self
    }

    /// Returns the engine with its choices kept in a file, from which it and other processes take
    /// them later. A file that does not exist is created with the first choice.
    #[must_use]
    pub fn with_choices_in(mut self, file: &Path) -> Self {
        self.device.choices = Arc::new(Choices::in_file(file));
        self
    }

    /// Returns the rule by which the engine chooses how to compute convolutions and products.
    #[must_use]
    pub fn choice(&self) -> KernelChoice {
        self.device.choice
    }

    /// Returns the choice that was [recorded](Self::record_choice) for a subject on such a device,
    /// with these libraries and kernels of this crate; `None` if there is none.
    #[must_use]
    pub fn recorded_choice(&self, subject: &str) -> Option<String> {
        self.device.choices.get(&self.device.key_of_subject(subject))
    }

    /// Records a choice for a subject, such as the name of a job, beside the choices among
    /// candidates: see [`with_choices_in`](Self::with_choices_in). Both are one line without tabs.
    /// Returns the choice that is kept: another one if a process or device has recorded one before
    /// that `is_possible`.
    #[must_use = "another choice may be kept"]
    pub fn record_choice(
        &self,
        subject: &str,
        choice: &str,
        is_possible: impl FnOnce(&str) -> bool,
    ) -> String {
        self.device.choices.record(&self.device.key_of_subject(subject), choice.to_owned(), is_possible)
    }

    /// Returns the context of the device.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.device.context
    }

    /// Creates a queue on a new stream with a priority. [`Engine::queue`] has
    /// [`Priority::Background`], CUDA's default.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if CUDA cannot create the stream or allocate the launch context.
    pub fn queue_with_priority(&self, priority: Priority) -> Result<CudaQueue, EngineError> {
        self.queue_on(&Stream::new(self.context(), priority).map_err(failed("create a stream"))?)
    }

    /// Creates a queue on a stream of this device.
    ///
    /// # Errors
    /// [`EngineError::Cuda`] if CUDA cannot allocate the launch context.
    pub fn queue_on(&self, stream: &Stream) -> Result<CudaQueue, EngineError> {
        CudaQueue::new(&self.device, stream)
    }

    /// Prepares the kernel of a chain of elementwise operations, which is one launch.
    ///
    /// # Errors
    /// [`EngineError::Library`] if the number of terms, copies or elements is out of range or an
    /// operand is too large; [`EngineError::Unsupported`] for another pass or layer than those that
    /// a chain may have; [`EngineError::OutOfMemory`]; [`EngineError::Cuda`] if CUDA fails.
    pub fn prepare_chain(&self, chain: &ElementwiseChain<'_>) -> Result<CudaKernel, EngineError> {
        prepare::chain(&self.device, chain)
    }
}

impl Engine for CudaEngine {
    type Scalar = f32;
    type Buffer = Buffer<f32>;
    type Queue = CudaQueue;
    type Kernel = CudaKernel;

    fn describe(&self) -> DeviceDescription {
        let name = self.context().device_name();
        let capabilities = self.context().capabilities().ok();
        let version =
            capabilities.map(|known| ("CUDA of the driver".to_owned(), known.driver_version.to_string()));
        let clock_khz = capabilities.map(|known| known.clock_khz).filter(|&clock| clock > 0);
        let mut libraries = match self.device.choice {
            KernelChoice::Own => BTreeMap::new(),
            KernelChoice::Fastest | KernelChoice::Vendor => self.device.libraries.versions(),
        };
        libraries.extend(version);
        if self.device.image_layout != ImageLayout::ChannelsFirst {
            libraries.insert("images".to_owned(), self.device.image_layout.label().to_owned());
        }
        DeviceDescription {
            name: name.unwrap_or_else(|_| format!("CUDA device {}", self.context().ordinal())),
            libraries,
            clock_mhz: clock_khz.map(|clock| clock / 1000),
        }
    }

    fn image_layout(&self) -> ImageLayout {
        self.device.image_layout
    }

    fn allocate(&self, elements: usize) -> Result<Buffer<f32>, EngineError> {
        Buffer::zeros(self.context(), elements).map_err(allocation_failed(elements))
    }

    fn queue(&self) -> Result<CudaQueue, EngineError> {
        self.queue_with_priority(Priority::Background)
    }

    fn upload(
        &self,
        host: &[f32],
        buffer: &mut Buffer<f32>,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        let copied = start_of(buffer, host.len(), "upload")?.upload(queue.stream(), host);
        copied.map_err(|error| queue.error("copy to the device", error))
    }

    fn download(
        &self,
        buffer: &Buffer<f32>,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        let copied = start_of(buffer, host.len(), "download")?.download(queue.stream(), host);
        copied.map_err(|error| queue.error("copy from the device", error))
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<CudaKernel, EngineError> {
        prepare::kernel(&self.device, spec, precision)
    }

    fn enqueue(
        &self,
        kernel: &mut CudaKernel,
        reads: &[&Buffer<f32>],
        writes: &mut [&mut Buffer<f32>],
        context: &LaunchContext,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        if kernel.reads_context() {
            queue.set_context(context)?;
        }
        queue.launch(kernel, reads, writes)
    }

    fn synchronize(&self, queue: &mut CudaQueue) -> Result<(), EngineError> {
        queue.synchronize()
    }

    fn parts<'k>(&self, kernel: &'k CudaKernel) -> &'k [KernelPart] {
        kernel.parts()
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
        timing::replays(queue, body, measure)
    }
}

/// Returns the first `elements` elements of a buffer for a copy from or to the host.
///
/// # Errors
/// [`EngineError::Operand`] if the buffer is shorter.
fn start_of(buffer: &Buffer<f32>, elements: usize, copy: &str) -> Result<Buffer<f32>, EngineError> {
    #![allow(unsafe_code)]
    // SAFETY: it is used for one copy, at the place of the buffer in the order of the queue.
    unsafe { buffer.alias(0..elements) }.map_err(|_| EngineError::Operand {
        kernel: copy.into(),
        operand: "buffer".into(),
        expected: elements,
        got: buffer.len(),
    })
}

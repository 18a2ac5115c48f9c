//! The CUDA engine of a rank, whose kernels several launches share.

use std::path::PathBuf;
use std::sync::Arc;

use cuda::{Buffer, Context};
use layer_engine::{
    CudaEngine, CudaKernel, CudaQueue, DeviceDescription, Engine, EngineError, ImageLayout, KernelChoice,
    KernelPart, KernelSpec, LaunchContext, Precision,
};

use super::clock::RankClock;

/// The [`CudaEngine`] of a rank. Launches share its kernels. On emulated GPUs it has a virtual
/// time.
#[derive(Debug, Clone)]
pub struct GpuEngine {
    engine: CudaEngine,
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
        Ok(Self { engine: cuda_engine(device)?, clock })
    }

    /// Creates an engine on each of the CUDA devices `0..ranks`, for ranks that are threads of this
    /// process. On emulated GPUs they share one virtual time.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_ranks(ranks: usize) -> Result<Vec<Self>, EngineError> {
        let mut clocks = clocks_of(ranks)?.into_iter();
        let engine = |device| Ok(Self { engine: cuda_engine(device)?, clock: clocks.next() });
        (0..ranks).map(engine).collect()
    }

    /// Wraps an engine of a given device.
    #[cfg(test)]
    pub(super) fn of_engine(engine: CudaEngine) -> Self {
        Self { engine, clock: None }
    }

    /// Returns the engine with a rule by which it chooses how to compute convolutions and products:
    /// see [`CudaEngine::with_choice`].
    #[must_use]
    pub fn with_choice(self, choice: KernelChoice) -> Self {
        Self { engine: self.engine.with_choice(choice), ..self }
    }

    /// Returns the engine with or without algorithms of libraries whose results differ from run to
    /// run: see [`CudaEngine::with_nondeterministic`].
    #[must_use]
    pub fn with_nondeterministic(self, is_permitted: bool) -> Self {
        Self { engine: self.engine.with_nondeterministic(is_permitted), ..self }
    }

    /// Returns the engine with an order of the elements of images and filters: see
    /// [`CudaEngine::with_image_layout`].
    #[must_use]
    pub fn with_image_layout(self, layout: ImageLayout) -> Self {
        Self { engine: self.engine.with_image_layout(layout), ..self }
    }

    /// Returns the CUDA context of the device.
    #[must_use]
    pub fn context(&self) -> &Context {
        self.engine.context()
    }

    /// Returns the virtual time as this rank's thread uses it; `None` on real GPUs.
    pub(super) fn clock(&self) -> Option<&Arc<RankClock>> {
        self.clock.as_ref()
    }

    /// Returns the CUDA engine.
    pub(super) fn cuda(&self) -> &CudaEngine {
        &self.engine
    }
}

/// Creates an engine on the CUDA device with this number, from 0. Choices of kernels are kept in
/// `deeppool/kernels.tsv` in the user's folder of caches: `XDG_CACHE_HOME`, or `.cache` at home.
///
/// # Errors
/// [`EngineError::Device`] if there is no CUDA driver or no such device.
pub fn cuda_engine(device: usize) -> Result<CudaEngine, EngineError> {
    let engine = CudaEngine::new(device)?;
    let folder = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let caches = folder("XDG_CACHE_HOME").or_else(|| folder("HOME").map(|home| home.join(".cache")));
    Ok(match caches {
        Some(caches) => engine.with_choices_in(&caches.join("deeppool/kernels.tsv")),
        None => engine,
    })
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
    type Buffer = Buffer<f32>;
    type Queue = CudaQueue;
    /// Shared with the launches that use it.
    type Kernel = Arc<CudaKernel>;

    fn describe(&self) -> DeviceDescription {
        self.engine.describe()
    }

    fn image_layout(&self) -> ImageLayout {
        self.engine.image_layout()
    }

    fn allocate(&self, elements: usize) -> Result<Buffer<f32>, EngineError> {
        self.engine.allocate(elements)
    }

    fn queue(&self) -> Result<CudaQueue, EngineError> {
        self.engine.queue()
    }

    fn upload(
        &self,
        host: &[f32],
        buffer: &mut Buffer<f32>,
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        self.engine.upload(host, buffer, queue)
    }

    fn download(
        &self,
        buffer: &Buffer<f32>,
        host: &mut [f32],
        queue: &mut CudaQueue,
    ) -> Result<(), EngineError> {
        self.engine.download(buffer, host, queue)
    }

    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Arc<CudaKernel>, EngineError> {
        self.engine.prepare(spec, precision).map(Arc::new)
    }

    fn enqueue(
        &self,
        kernel: &mut Arc<CudaKernel>,
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
        self.engine.synchronize(queue)
    }

    fn parts<'k>(&self, kernel: &'k Arc<CudaKernel>) -> &'k [KernelPart] {
        kernel.parts()
    }
}

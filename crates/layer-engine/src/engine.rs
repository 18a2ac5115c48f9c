use std::time::{Duration, Instant};

use crate::{DeviceDescription, EngineError, KernelSpec, LaunchContext, Precision};

/// How long the device takes for a number of runs of some work, from an empty queue to an empty queue: see [`Engine::time`].
pub type Stopwatch<'a> = dyn FnMut(u32) -> Result<Duration, EngineError> + 'a;

/// Runs single layers on a device: memory, transfers, and kernels that are prepared once and launched often.
///
/// Work goes to a *queue* and runs in the queue's order. A CPU queue runs at once; a device's queue returns before the
/// work is done, and only [`download`](Engine::download) and [`synchronize`](Engine::synchronize) wait for it.
pub trait Engine {
    /// The type of the elements of a buffer on the host.
    type Scalar: Copy + Send + Sync + 'static;
    /// Memory of the device. The default is an empty buffer that holds no memory, so that a caller can take a buffer out
    /// of its place while a kernel writes to it.
    type Buffer: Default;
    /// An ordered stream of work.
    type Queue;
    /// A kernel with its workspace.
    type Kernel;

    /// What the engine runs on, as a measurement should record it.
    fn describe(&self) -> DeviceDescription;

    /// A buffer of this many zeros.
    ///
    /// # Errors
    /// When the device has no room for it.
    fn allocate(&self, elements: usize) -> Result<Self::Buffer, EngineError>;

    /// Lets a buffer hold other contents of this length, at most the length with which it was allocated, when the work before it
    /// in the queue is done. What its elements are afterwards is not specified.
    ///
    /// # Errors
    /// When the device has no room for it.
    fn reuse(
        &self,
        buffer: &mut Self::Buffer,
        elements: usize,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// A new queue.
    ///
    /// # Errors
    /// When the device cannot create one.
    fn queue(&self) -> Result<Self::Queue, EngineError>;

    /// Copies elements to the start of a buffer.
    ///
    /// # Errors
    /// When the buffer is shorter than `host`.
    fn upload(
        &self,
        host: &[Self::Scalar],
        buffer: &mut Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Copies elements from the start of a buffer, when the work before it in the queue is done.
    ///
    /// # Errors
    /// When the buffer is shorter than `host`.
    fn download(
        &self,
        buffer: &Self::Buffer,
        host: &mut [Self::Scalar],
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Prepares a kernel: chooses its algorithm and allocates its workspace.
    ///
    /// # Errors
    /// When the engine has no such kernel, or not in this precision.
    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Self::Kernel, EngineError>;

    /// Launches a kernel. Allocates nothing, so that it can be captured into a graph.
    ///
    /// `reads` and `writes` are the operands in the order of the kernel's [`Signature`](crate::Signature), or as
    /// [`KernelSpec`] says.
    ///
    /// # Errors
    /// When the operands do not fit the kernel.
    fn enqueue(
        &self,
        kernel: &mut Self::Kernel,
        reads: &[&Self::Buffer],
        writes: &mut [&mut Self::Buffer],
        context: &LaunchContext,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Waits until everything in the queue is done.
    ///
    /// # Errors
    /// When some of it failed.
    fn synchronize(&self, queue: &mut Self::Queue) -> Result<(), EngineError>;

    /// Times runs of `body`: `measure` is given a [`Stopwatch`] of them, and may use it as often as it likes.
    ///
    /// This is the host's clock around the runs. An engine of a device that replays captured work may run `body` only a few
    /// times, capture it once, and time the replays by the device's own clock.
    ///
    /// # Errors
    /// What `body` or `measure` fails with, or the device.
    fn time(
        &self,
        queue: &mut Self::Queue,
        body: &mut dyn FnMut(&mut Self::Queue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        time_by_the_host(self, queue, body, measure)
    }
}

/// [`Engine::time`] by the host's clock.
pub(crate) fn time_by_the_host<E: Engine + ?Sized>(
    engine: &E,
    queue: &mut E::Queue,
    body: &mut dyn FnMut(&mut E::Queue) -> Result<(), EngineError>,
    measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    measure(&mut |rounds| {
        engine.synchronize(queue)?;
        let start = Instant::now();
        for _ in 0..rounds {
            body(queue)?;
        }
        engine.synchronize(queue)?;
        Ok(start.elapsed())
    })
}

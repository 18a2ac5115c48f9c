use std::time::{Duration, Instant};

use crate::{DeviceDescription, EngineError, KernelSpec, LaunchContext, Precision};

/// Measures the time of a number of runs, from an empty queue to an empty queue: see
/// [`Engine::time`].
pub type Stopwatch<'a> = dyn FnMut(u32) -> Result<Duration, EngineError> + 'a;

/// Runs single layers on a device. An engine allocates memory, transfers data, and launches kernels
/// that it has prepared.
///
/// Work is enqueued on a *queue* and runs in the order of the queue. A CPU queue runs the work
/// immediately. A device's queue returns before the work is complete; only
/// [`download`](Engine::download) and [`synchronize`](Engine::synchronize) wait for it.
pub trait Engine {
    /// Type of the elements of a buffer on the host.
    type Scalar: Copy + Send + Sync + 'static;
    /// Memory of the device. The default is an empty buffer that holds no memory, so that a caller
    /// can take a buffer with `std::mem::take` while a kernel writes to it.
    type Buffer: Default;
    /// An ordered stream of work.
    type Queue;
    /// A prepared kernel with its workspace.
    type Kernel;

    /// Describes the device and the libraries, for the record of a measurement.
    fn describe(&self) -> DeviceDescription;

    /// Allocates a buffer of zeros.
    ///
    /// # Errors
    /// If the device is out of memory.
    fn allocate(&self, elements: usize) -> Result<Self::Buffer, EngineError>;

    /// Changes the length of a buffer once the work before it in the queue is complete. `elements`
    /// is at most the length with which the buffer was allocated. The values of the elements are
    /// unspecified afterwards.
    ///
    /// # Errors
    /// If the device is out of memory.
    fn reuse(
        &self,
        buffer: &mut Self::Buffer,
        elements: usize,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Creates a queue.
    ///
    /// # Errors
    /// If the device cannot create a queue.
    fn queue(&self) -> Result<Self::Queue, EngineError>;

    /// Copies `host` to the start of a buffer.
    ///
    /// # Errors
    /// If the buffer is shorter than `host`.
    fn upload(
        &self,
        host: &[Self::Scalar],
        buffer: &mut Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Copies the start of a buffer to `host` once the work before it in the queue is complete.
    ///
    /// # Errors
    /// If the buffer is shorter than `host`.
    fn download(
        &self,
        buffer: &Self::Buffer,
        host: &mut [Self::Scalar],
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Prepares a kernel: selects its algorithm and allocates its workspace.
    ///
    /// # Errors
    /// If the engine has no such kernel, or does not have it in this precision.
    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Self::Kernel, EngineError>;

    /// Launches a kernel. Allocates no memory, so that the launch can be captured into a graph.
    ///
    /// `reads` and `writes` are the operands in the order of the kernel's
    /// [`Signature`](crate::Signature), or in the order given by [`KernelSpec`].
    ///
    /// # Errors
    /// If the operands do not match the kernel in number or length.
    fn enqueue(
        &self,
        kernel: &mut Self::Kernel,
        reads: &[&Self::Buffer],
        writes: &mut [&mut Self::Buffer],
        context: &LaunchContext,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Waits until all work in the queue is complete.
    ///
    /// # Errors
    /// If any of the work failed.
    fn synchronize(&self, queue: &mut Self::Queue) -> Result<(), EngineError>;

    /// Times runs of `body`. `measure` receives a [`Stopwatch`] that runs `body` a given number of
    /// times; it may call the stopwatch any number of times.
    ///
    /// The default implementation reads the host's clock around the runs. An engine whose device
    /// can replay captured work may run `body` a few times, capture it once, and time the replays
    /// by the device's clock.
    ///
    /// # Errors
    /// Errors of `body`, of `measure`, or of the device.
    fn time(
        &self,
        queue: &mut Self::Queue,
        body: &mut dyn FnMut(&mut Self::Queue) -> Result<(), EngineError>,
        measure: &mut dyn FnMut(&mut Stopwatch<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        time_on_host(self, queue, body, measure)
    }
}

/// Implements [`Engine::time`] with the host's clock.
pub(crate) fn time_on_host<E: Engine + ?Sized>(
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

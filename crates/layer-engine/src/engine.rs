//! Interface that all engines share.

use std::time::{Duration, Instant};

use layer_graph::Layer;

use crate::{
    DeviceDescription, EngineError, ImageLayout, KernelPart, KernelSpec, LaunchContext, Precision, Role,
    Storage,
};

/// Function that does the timed work a given number of times. It returns the time from an empty
/// queue before the first run to an empty queue after the last one: see [`Engine::time`].
pub type Stopwatch<'a> = dyn FnMut(u32) -> Result<Duration, EngineError> + 'a;

/// Implementation of single layers on a device. An engine allocates memory, transfers data, and
/// launches kernels that it has prepared.
///
/// Work is enqueued on a *queue* and runs in the order of the queue. A CPU queue runs the work
/// immediately. A device's queue returns before the work is complete; only
/// [`download`](Engine::download) and [`synchronize`](Engine::synchronize) wait for it.
pub trait Engine {
    /// Type of the elements of all buffers, on the host and for the caller of the engine.
    type Scalar: Copy + Send + Sync + 'static;
    /// Array in the memory of the device. The default is an empty buffer that holds no memory, so
    /// that a caller can take a buffer with `std::mem::take` while a kernel writes to it.
    type Buffer: Default;
    /// Ordered sequence of work on the device, such as a CUDA stream.
    type Queue;
    /// Prepared kernel: its launches, fixed for one shape and one number of samples, and its
    /// workspace.
    type Kernel;

    /// Describes the device and the libraries, for the record of a measurement.
    fn describe(&self) -> DeviceDescription;

    /// Returns the order of the elements of images and filters in all buffers: that of
    /// [`Role`] with channels first by default.
    fn image_layout(&self) -> ImageLayout {
        ImageLayout::ChannelsFirst
    }

    /// Allocates a buffer of `elements` zeros.
    ///
    /// # Errors
    /// [`EngineError::OutOfMemory`] if the device has no memory for it; an error of the device.
    fn allocate(&self, elements: usize) -> Result<Self::Buffer, EngineError>;

    /// Creates a queue without pending work.
    ///
    /// # Errors
    /// If the device cannot create a queue.
    fn queue(&self) -> Result<Self::Queue, EngineError>;

    /// Copies `host` to the start of a buffer, after the work before it in the queue. `host` can be
    /// changed after the call.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the buffer is shorter than `host`; an error of the device.
    fn upload(
        &self,
        host: &[Self::Scalar],
        buffer: &mut Self::Buffer,
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Copies the start of a buffer to `host` once the work before it in the queue is complete, and
    /// waits for the copy.
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the buffer is shorter than `host`; an error of the device, also
    /// of earlier work in the queue.
    fn download(
        &self,
        buffer: &Self::Buffer,
        host: &mut [Self::Scalar],
        queue: &mut Self::Queue,
    ) -> Result<(), EngineError>;

    /// Prepares a kernel: selects its algorithm and allocates its workspace.
    ///
    /// # Errors
    /// [`EngineError::Unsupported`] or [`EngineError::Opaque`] if the engine has no such kernel;
    /// [`EngineError::Precision`] if it does not compute in this precision;
    /// [`EngineError::ChannelsLast`] if it has no such kernel in its [`ImageLayout`];
    /// [`EngineError::Operand`] for a sum without terms; [`EngineError::OutOfMemory`] if the device
    /// has no memory for the workspace; an error of the device.
    fn prepare(&self, spec: &KernelSpec<'_>, precision: Precision) -> Result<Self::Kernel, EngineError>;

    /// Returns the number format of the buffer of a role in the kernels that the engine prepares in
    /// a precision. The default is that of [`Role::storage`].
    fn storage(&self, role: Role, layer: &Layer, precision: Precision) -> Storage {
        role.storage(layer, precision)
    }

    /// Launches a kernel. Allocates no memory, so that the launch can be captured into a graph.
    ///
    /// `reads` and `writes` are the operands in the order of the kernel's
    /// [`Signature`](crate::Signature), or in the order given by [`KernelSpec`].
    ///
    /// # Errors
    /// [`EngineError::Operand`] if the operands do not match the kernel in number or length; an
    /// error of the device. On the CPU, [`EngineError::Label`] or [`EngineError::Token`] for an
    /// invalid label or token.
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

    /// Returns the parts of a kernel for which the engine chose among candidates, with the choices.
    /// Empty by default.
    fn parts<'k>(&self, kernel: &'k Self::Kernel) -> &'k [KernelPart] {
        let _ = kernel;
        &[]
    }

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
///
/// # Errors
/// Errors of `body` and of `measure`, and errors of waiting for the queue.
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

//! Backends: the engine and the communicator that a rank runs a program with, and the device of a
//! rank. A *queue* is an ordered sequence of work on a device. Enqueueing does not wait for the
//! work.

use std::marker::PhantomData;
use std::sync::Arc;

use collectives::{Communicator, Group, HostArena, HostBuffer, ThreadCommunicator};
use layer_engine::{CpuEngine, Engine};

use super::Arena;
use crate::Error;
use crate::program::ELEMENT_BYTES;

/// A kind of rank: an engine that runs layers and a communicator between ranks, which use the same
/// buffers.
pub trait Backend: Sized {
    /// Memory on the rank's device that kernels use and collectives transfer.
    type Buffer: Default;
    /// Engine that runs layers, with scalars of 4 bytes. A rank has one each for its foreground and
    /// its background jobs.
    type Engine: Engine<Scalar = f32, Buffer = Self::Buffer> + Clone;
    /// Communicator between the ranks.
    type Communicator: Communicator<f32, Buffer = Self::Buffer>;
    /// Memory on the rank's device in which buffers have fixed places.
    type Arena: Arena<Buffer = Self::Buffer>;

    /// Whether kernels are complete when they are enqueued.
    const IS_SYNCHRONOUS: bool;

    /// Allocates an arena of `scalars` zeros.
    ///
    /// # Errors
    /// If the device is out of memory.
    fn allocate_arena(engine: &Self::Engine, scalars: usize) -> Result<Self::Arena, Error>;

    /// Returns a queue for collectives on the engine's device. It runs concurrently with the queue
    /// of kernels.
    ///
    /// # Errors
    /// The error of the engine or the communicator if the device fails.
    fn communication_queue(engine: &Self::Engine) -> Result<CommunicationQueue<Self>, Error>;

    /// Makes the collectives that are started from now on wait for the kernels enqueued so far. In
    /// the other direction the host waits: a step is enqueued when the collectives that it depends
    /// on are complete.
    ///
    /// # Errors
    /// If the device fails.
    fn communicate_after(
        compute: &mut ComputeQueue<Self>,
        communication: &mut CommunicationQueue<Self>,
    ) -> Result<(), Error>;
}

/// Queue of the kernels of backend `B`.
pub type ComputeQueue<B> = <<B as Backend>::Engine as Engine>::Queue;

/// Queue of the collectives of backend `B`.
pub type CommunicationQueue<B> = <<B as Backend>::Communicator as Group>::Queue;

/// The device of a rank: an engine with a queue for kernels and a queue for collectives.
pub struct RankDevice<B: Backend> {
    /// The engine that runs kernels.
    pub engine: B::Engine,
    /// Queue of kernels.
    pub queue: ComputeQueue<B>,
    /// Queue of collectives.
    pub communication: CommunicationQueue<B>,
    allocated_bytes: u64,
}

impl<B: Backend> RankDevice<B> {
    /// Creates a device with new queues of this engine.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(engine: B::Engine) -> Result<Self, Error> {
        let (queue, communication) = (engine.queue()?, B::communication_queue(&engine)?);
        Ok(Self { engine, queue, communication, allocated_bytes: 0 })
    }

    /// Returns the queue for a collective that is started next. The collective waits for the
    /// kernels enqueued so far.
    ///
    /// # Errors
    /// The error of the device.
    pub(crate) fn communication_queue(&mut self) -> Result<&mut CommunicationQueue<B>, Error> {
        B::communicate_after(&mut self.queue, &mut self.communication)?;
        Ok(&mut self.communication)
    }

    /// Allocates a buffer of `scalars` zeros, which is counted in
    /// [`allocated_bytes`](Self::allocated_bytes).
    ///
    /// # Errors
    /// [`Error::Engine`] if the engine runs out of memory.
    pub(super) fn allocate(&mut self, scalars: usize) -> Result<B::Buffer, Error> {
        let buffer = self.engine.allocate(scalars)?;
        self.allocated_bytes += scalars as u64 * ELEMENT_BYTES;
        Ok(buffer)
    }

    /// Allocates an arena of `scalars` zeros, which is counted in
    /// [`allocated_bytes`](Self::allocated_bytes).
    ///
    /// # Errors
    /// If the device is out of memory.
    pub(super) fn allocate_arena(&mut self, scalars: usize) -> Result<B::Arena, Error> {
        let arena = B::allocate_arena(&self.engine, scalars)?;
        self.allocated_bytes += scalars as u64 * ELEMENT_BYTES;
        Ok(arena)
    }

    /// Returns the size in bytes of all buffers that were allocated for programs and their state so
    /// far, without the workspaces of kernels.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }
}

/// Backend of ranks that compute on the processor, with communicators of type `C`.
#[derive(Debug, Clone, Copy)]
pub struct Cpu<C>(PhantomData<C>);

/// Backend of ranks that are threads of this process and compute on the processor.
pub type CpuThreads = Cpu<ThreadCommunicator>;

impl<C: Communicator<f32, Buffer = HostBuffer<f32>, Queue = ()>> Backend for Cpu<C> {
    type Buffer = HostBuffer<f32>;
    type Engine = CpuEngine<f32, HostBuffer<f32>>;
    type Communicator = C;
    type Arena = Arc<HostArena<f32>>;

    const IS_SYNCHRONOUS: bool = true;

    fn allocate_arena(_: &Self::Engine, scalars: usize) -> Result<Self::Arena, Error> {
        Ok(HostArena::new(scalars)?)
    }

    fn communication_queue(_: &Self::Engine) -> Result<(), Error> {
        Ok(())
    }

    /// Kernels are complete when they are enqueued.
    fn communicate_after((): &mut (), (): &mut ()) -> Result<(), Error> {
        Ok(())
    }
}

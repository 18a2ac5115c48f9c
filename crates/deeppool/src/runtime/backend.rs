use std::marker::PhantomData;

use collectives::{Communicator, ThreadCommunicator};
use layer_engine::{CpuEngine, Engine};

use crate::Error;
use crate::program::ELEMENT_BYTES;

/// An engine and a communicator that share their buffers and queues.
pub trait Backend {
    /// Memory that kernels compute on and collectives send.
    type Buffer: Default;
    /// Where work is enqueued.
    type Queue;
    /// Runs layers. A rank has several, for its foreground and its background.
    type Engine: Engine<Scalar = f32, Buffer = Self::Buffer, Queue = Self::Queue> + Clone;
    /// Connects the ranks.
    type Communicator: Communicator<f32, Buffer = Self::Buffer, Queue = Self::Queue>;
}

/// What a rank computes on: an engine with a queue of its own.
pub struct RankDevice<B: Backend> {
    /// The engine.
    pub engine: B::Engine,
    /// The queue.
    pub queue: B::Queue,
    allocated_bytes: u64,
}

impl<B: Backend> RankDevice<B> {
    /// A new queue of this engine.
    ///
    /// # Errors
    /// When the device refuses it.
    pub fn new(engine: B::Engine) -> Result<Self, Error> {
        let queue = engine.queue()?;
        Ok(Self { engine, queue, allocated_bytes: 0 })
    }

    /// A buffer of this many zeros that is kept.
    pub(super) fn allocate(&mut self, elements: usize) -> Result<B::Buffer, Error> {
        let buffer = self.engine.allocate(elements)?;
        self.allocated_bytes += elements as u64 * ELEMENT_BYTES;
        Ok(buffer)
    }

    /// Bytes of all buffers that programs and their state were given. What kernels allocate for themselves is not in it.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.allocated_bytes
    }
}

/// Ranks that compute on the processor, whatever connects them.
#[derive(Debug, Clone, Copy)]
pub struct Cpu<C>(PhantomData<C>);

/// Ranks that are threads of this process.
pub type CpuThreads = Cpu<ThreadCommunicator>;

impl<C: Communicator<f32, Buffer = Vec<f32>, Queue = ()>> Backend for Cpu<C> {
    type Buffer = Vec<f32>;
    type Queue = ();
    type Engine = CpuEngine<f32>;
    type Communicator = C;
}

use collectives::{Communicator, PendingRedistribution, Redistribution, ThreadCommunicator};
use layer_engine::{CpuEngine, Engine};

use crate::Error;
use crate::program::ELEMENT_BYTES;

/// An engine and a communicator that share their buffers and queues.
pub trait Backend {
    /// Memory that kernels compute on and collectives send.
    type Buffer: Default;
    /// Where work is enqueued.
    type Queue;
    /// Runs layers.
    type Engine: Engine<Scalar = f32, Buffer = Self::Buffer, Queue = Self::Queue>;
    /// Connects the ranks.
    type Communicator: Communicator<f32, Buffer = Self::Buffer, Queue = Self::Queue>;
    /// A redistribution under way.
    type Moving: PendingMove<Buffer = Self::Buffer>;

    /// Starts a redistribution over the group of its ranks. `input` is this rank's shard before, empty when it has none.
    ///
    /// # Errors
    /// When the communicator refuses it.
    fn start_redistribution(
        communicator: &Self::Communicator,
        redistribution: &Redistribution,
        input: &Self::Buffer,
        sample_elements: usize,
        queue: &mut Self::Queue,
    ) -> Result<Self::Moving, Error>;
}

/// An engine with a queue of its own.
pub struct Device<B: Backend> {
    /// The engine.
    pub engine: B::Engine,
    /// The queue.
    pub queue: B::Queue,
    allocated_bytes: u64,
}

impl<B: Backend> Device<B> {
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

/// A redistribution of samples in progress.
pub trait PendingMove {
    /// Where they arrive.
    type Buffer;

    /// Whether they have arrived. Never blocks.
    ///
    /// # Errors
    /// When the communication failed.
    fn test(&mut self) -> Result<bool, Error>;

    /// Waits for them and puts them into this rank's shard afterwards, which is empty when it has none.
    ///
    /// # Errors
    /// When the communication failed.
    fn finish(self, output: &mut Self::Buffer) -> Result<(), Error>;
}

/// Ranks are threads of this process that compute on the CPU.
#[derive(Debug, Clone, Copy)]
pub struct CpuThreads;

type ThreadExchange = <ThreadCommunicator as Communicator<f32>>::ExchangeRequest;

impl Backend for CpuThreads {
    type Buffer = Vec<f32>;
    type Queue = ();
    type Engine = CpuEngine<f32>;
    type Communicator = ThreadCommunicator;
    type Moving = PendingRedistribution<f32, ThreadExchange>;

    fn start_redistribution(
        communicator: &ThreadCommunicator,
        redistribution: &Redistribution,
        input: &Vec<f32>,
        sample_elements: usize,
        queue: &mut (),
    ) -> Result<Self::Moving, Error> {
        Ok(redistribution.start(communicator, input, sample_elements, queue)?)
    }
}

impl PendingMove for PendingRedistribution<f32, ThreadExchange> {
    type Buffer = Vec<f32>;

    fn test(&mut self) -> Result<bool, Error> {
        Ok(Self::test(self)?)
    }

    fn finish(self, output: &mut Vec<f32>) -> Result<(), Error> {
        Ok(self.wait_into(output)?)
    }
}

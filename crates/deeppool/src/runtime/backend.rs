use std::marker::PhantomData;

use collectives::{Communicator, Group, ThreadCommunicator};
use layer_engine::{CpuEngine, Engine};

use crate::Error;
use crate::program::ELEMENT_BYTES;

/// An engine and a communicator that share their buffers.
pub trait Backend: Sized {
    /// Memory that kernels compute on and collectives send.
    type Buffer: Default;
    /// Runs layers. A rank has several, for its foreground and its background.
    type Engine: Engine<Scalar = f32, Buffer = Self::Buffer> + Clone;
    /// Connects the ranks.
    type Communicator: Communicator<f32, Buffer = Self::Buffer>;

    /// A queue for collectives on the engine's device, beside which its kernels go on.
    ///
    /// # Errors
    /// When the device refuses it.
    fn communication_queue(engine: &Self::Engine) -> Result<CommunicationQueue<Self>, Error>;

    /// Lets the collectives that are started from now on wait for the kernels that are enqueued by now. The other way round, the
    /// host waits: steps are enqueued when the collectives that they need are complete.
    ///
    /// # Errors
    /// When the device refuses it.
    fn communicate_after(
        compute: &mut ComputeQueue<Self>,
        communication: &mut CommunicationQueue<Self>,
    ) -> Result<(), Error>;
}

/// Where a backend's kernels are enqueued.
pub type ComputeQueue<B> = <<B as Backend>::Engine as Engine>::Queue;

/// Where a backend's collectives are enqueued.
pub type CommunicationQueue<B> = <<B as Backend>::Communicator as Group>::Queue;

/// What a rank computes on: an engine with a queue of its own, and one for collectives.
pub struct RankDevice<B: Backend> {
    /// The engine.
    pub engine: B::Engine,
    /// The queue of kernels.
    pub queue: ComputeQueue<B>,
    /// The queue of collectives.
    pub communication: CommunicationQueue<B>,
    allocated_bytes: u64,
}

impl<B: Backend> RankDevice<B> {
    /// New queues of this engine.
    ///
    /// # Errors
    /// When the device refuses them.
    pub fn new(engine: B::Engine) -> Result<Self, Error> {
        let (queue, communication) = (engine.queue()?, B::communication_queue(&engine)?);
        Ok(Self { engine, queue, communication, allocated_bytes: 0 })
    }

    /// The queue for a collective that is to be started: it waits for the kernels that are enqueued by now.
    pub(crate) fn communication_queue(&mut self) -> Result<&mut CommunicationQueue<B>, Error> {
        B::communicate_after(&mut self.queue, &mut self.communication)?;
        Ok(&mut self.communication)
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
    type Engine = CpuEngine<f32>;
    type Communicator = C;
    fn communication_queue(_: &CpuEngine<f32>) -> Result<(), Error> {
        Ok(())
    }

    /// Kernels are done when they are enqueued.
    fn communicate_after((): &mut (), (): &mut ()) -> Result<(), Error> {
        Ok(())
    }
}

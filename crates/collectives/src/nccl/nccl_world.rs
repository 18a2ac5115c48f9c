//! The world whose ranks are GPUs: its settings, and the connection of its ranks.

use std::env;
use std::sync::Arc;
use std::time::Duration;

use cuda::Context;
use cuda::nccl::Nccl;

use super::NcclCommunicator;
use super::bootstrap::{Endpoint, Environment, Store};
use super::comm::Settings;
use super::enqueued::NcclRank;
use super::group::NcclWorldState;
use crate::{Call, Error, Operation, Result, WaitStrategy};

/// A world whose ranks are processes with one NVIDIA GPU each.
///
/// Before NCCL is used, the ranks connect to rank 0 over TCP. A process with another world size, or
/// with a rank that is already connected, is refused with the reason; the others continue. The
/// connections stay open: groups are created and missing ranks are identified over them. Therefore
/// rank 0 must live while any other rank creates groups.
///
/// The network of the ranks must be trusted: neither these connections nor those of NCCL are
/// authenticated or encrypted, as with `torch.distributed`. If rank 0's address is a loopback
/// address (`localhost`, `127.0.0.1`, `::1`), only processes of its host can connect.
///
/// ```no_run
/// use collectives::{Communicator, NcclWorld, ReduceOp};
/// use cuda::{Buffer, Priority, Stream};
///
/// let ranks = NcclWorld::from_env()?.connect()?;
/// let mut stream = Stream::new(ranks.context(), Priority::default())?;
/// let mut sums = Buffer::from_slice(ranks.context(), &[1.0_f32; 1024])?;
/// ranks.all_reduce(&mut sums, ReduceOp::Sum, &mut stream)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct NcclWorld {
    me: Environment,
    timeout: Duration,
    wait: WaitStrategy,
    library: Option<Nccl>,
}

impl NcclWorld {
    /// Reads this process's rank from torchrun's variables: `RANK`, `WORLD_SIZE`, `LOCAL_RANK` (the
    /// device), `MASTER_ADDR` (rank 0's host) and `MASTER_PORT`.
    ///
    /// Rank 0 listens at `COLLECTIVES_PORT`, by default `MASTER_PORT` + 1, because torchrun itself
    /// may listen at `MASTER_PORT`.
    ///
    /// # Errors
    /// [`Error::Unavailable`], in one line, if a variable is missing or invalid.
    pub fn from_env() -> Result<Self> {
        Ok(Self::of(Environment::read(|name| env::var(name).ok())?))
    }

    /// Creates the world as rank `rank` of `size`, on the device with number `device` on this host.
    /// Rank 0 listens at `localhost:29501`.
    #[must_use]
    pub fn new(rank: usize, size: usize, device: usize) -> Self {
        let endpoint = Endpoint { host: "localhost".to_owned(), port: 29501 };
        Self::of(Environment { rank, size, device, endpoint })
    }

    fn of(me: Environment) -> Self {
        Self { me, timeout: Duration::from_secs(30), wait: WaitStrategy::default(), library: None }
    }

    /// Number of ranks of the world.
    #[must_use]
    pub fn size(&self) -> usize {
        self.me.size
    }

    /// Number of this rank's device on its host, from 0.
    #[must_use]
    pub fn device(&self) -> usize {
        self.me.device
    }

    /// Sets the address at which rank 0 listens: its host's name or address, and a port.
    #[must_use]
    pub fn with_address(mut self, host: impl Into<String>, port: u16) -> Self {
        (self.me.endpoint.host, self.me.endpoint.port) = (host.into(), port);
        self
    }

    /// Sets the time-out for which ranks wait for each other: at the start, and from the start of
    /// an operation to its end, including the work before it in its stream. Default: 30 seconds.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the strategy by which ranks wait. [`WaitStrategy::Park`] sleeps for up to 2 ms at a
    /// time, because no event wakes it.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// Sets the library to use instead of the one that [`Nccl::open`] finds.
    #[must_use]
    pub fn with_library(mut self, library: Nccl) -> Self {
        self.library = Some(library);
        self
    }

    /// Opens NCCL and CUDA, connects to the other ranks, and returns the communicator over all of
    /// them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if NCCL, CUDA or the device is missing; [`Error::NoSuchRank`] if the
    /// rank is not below the size; [`Error::Refused`] if rank 0 refuses this rank;
    /// [`Error::Rendezvous`] if ranks do not connect within the time-out; [`Error::Library`] if
    /// NCCL does not start.
    pub fn connect(&self) -> Result<NcclCommunicator> {
        let context = Context::open(self.me.device).map_err(Error::in_cuda("be opened"))?;
        self.connect_on(&context)
    }

    /// Connects to the other ranks like [`connect`](Self::connect), with the device of the given
    /// context.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_on(&self, context: &Context) -> Result<NcclCommunicator> {
        let Environment { rank, size, .. } = self.me;
        if rank >= size {
            return Err(Error::NoSuchRank { rank, size });
        }
        let nccl = self.library.clone().map_or_else(Nccl::open, Ok).map_err(Error::in_cuda("open NCCL"))?;
        // NCCL is initialized after all ranks have connected: its own error does not name a missing
        // rank.
        let store = Store::join(&self.me.endpoint, rank, size, self.timeout)?;
        let settings = Settings { nccl, context: context.clone(), timeout: self.timeout, wait: self.wait };
        let world = Arc::new(NcclRank::new(NcclWorldState::new(rank, settings, store)));
        let everyone: Vec<usize> = (0..size).collect();
        let call = Call { operation: Operation::Group { ranks: everyone.clone() }, element: None };
        let group = world.create_group("world".to_owned(), everyone, rank, &call)?;
        Ok(NcclCommunicator::new(world, Arc::new(group)))
    }
}

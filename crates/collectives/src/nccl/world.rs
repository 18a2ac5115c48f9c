//! Joining a job.

use std::env;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NcclCommunicator;
use super::bootstrap::{Endpoint, Environment, GatherError, Store, Token};
use super::comm::Settings;
use super::cuda;
use super::group::World;
use super::library::NcclLibrary;
use crate::{Call, Error, Operation, Result, WaitStrategy};

/// Ranks that are processes with one NVIDIA GPU each.
///
/// Before NCCL is used the ranks connect to rank 0 over TCP, where both ends prove that they know the job's token without
/// sending it. A process with another token or world size, or with a rank that is connected already, is refused with
/// the reason; the others go on. The connections stay: groups are created and missing ranks found out over them, so that
/// rank 0 has to live as long as any other rank creates groups.
///
/// ```no_run
/// use collectives::{Communicator, NcclBuffer, NcclWorld, ReduceOp};
///
/// let ranks = NcclWorld::from_env()?.connect()?;
/// let mut stream = ranks.new_stream()?;
/// let mut sums = NcclBuffer::upload(&[1.0_f32; 1024], &stream)?;
/// ranks.all_reduce(&mut sums, ReduceOp::Sum, &mut stream)?;
/// # Ok::<(), collectives::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct NcclWorld {
    me: Environment,
    timeout: Duration,
    wait: WaitStrategy,
    library: Option<NcclLibrary>,
}

impl NcclWorld {
    /// This process as torchrun's variables describe it: `RANK`, `WORLD_SIZE`, `LOCAL_RANK` (the device), `MASTER_ADDR`
    /// (rank 0's host) and `MASTER_PORT`.
    ///
    /// Rank 0 listens at `COLLECTIVES_PORT`, or else at `MASTER_PORT` + 1, since torchrun itself may listen at
    /// `MASTER_PORT`. `COLLECTIVES_JOB_TOKEN` is the job's token: any text, the same on every rank. Without one the ranks
    /// meet only on this host (`localhost`, `127.0.0.1`, `::1`), where any process can then join.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a variable that is missing or wrong, in one line.
    pub fn from_env() -> Result<Self> {
        Ok(Self::of(Environment::read(|name| env::var(name).ok())?))
    }

    /// Rank `rank` of `size`, on the device with this number on this host, endpoint at `localhost:29501`.
    #[must_use]
    pub fn new(rank: usize, size: usize, device: usize) -> Self {
        let endpoint = Endpoint { host: "localhost".to_owned(), port: 29501, token: Token::new("") };
        Self::of(Environment { rank, size, device, endpoint })
    }

    fn of(me: Environment) -> Self {
        Self { me, timeout: Duration::from_secs(30), wait: WaitStrategy::default(), library: None }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.me.size
    }

    /// The number of this rank's device on its host.
    #[must_use]
    pub fn device(&self) -> usize {
        self.me.device
    }

    /// Where rank 0 listens: its host's name or address, and a port.
    #[must_use]
    pub fn with_address(mut self, host: impl Into<String>, port: u16) -> Self {
        (self.me.endpoint.host, self.me.endpoint.port) = (host.into(), port);
        self
    }

    /// Sets the secret that all ranks of this job share.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.me.endpoint.token = Token::new(token);
        self
    }

    /// How long ranks wait for each other: at the start, and from the start of an operation to its end, the work that is
    /// before it in its stream included. 30 seconds by default.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// How ranks wait. [`WaitStrategy::Park`] sleeps in pieces of up to 2 ms, since nothing wakes it.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// The library to use, instead of what [`NcclLibrary::open`] finds.
    #[must_use]
    pub fn with_library(mut self, library: NcclLibrary) -> Self {
        self.library = Some(library);
        self
    }

    /// Opens NCCL and CUDA, connects to the other ranks, and gives the communicator over all of them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without NCCL, CUDA or the device; [`Error::NoSuchRank`] for a rank that the world does not
    /// have; [`Error::Refused`] when rank 0 does not want this rank; [`Error::Rendezvous`] when ranks do not come within
    /// the time-out; [`Error::Library`] when NCCL does not start.
    pub fn connect(&self) -> Result<NcclCommunicator> {
        let library = match &self.library {
            Some(library) => library.clone(),
            None => NcclLibrary::open()?,
        };
        let device = cuda::open(self.me.device)?;
        self.connect_with(library, device)
    }

    pub(super) fn connect_with(
        &self,
        library: NcclLibrary,
        device: cuda::Device,
    ) -> Result<NcclCommunicator> {
        let Environment { rank, size, .. } = self.me;
        if rank >= size {
            return Err(Error::NoSuchRank { rank, size });
        }
        let started = Instant::now();
        let store = Store::join(&self.me.endpoint, rank, size, self.timeout)?;
        let left = || self.timeout.saturating_sub(started.elapsed());
        let everyone: Vec<usize> = (0..size).collect();
        // NCCL is initialised when all ranks are connected: its own error for a missing rank does not name it.
        let met = store.gather("start", &everyone, rank, &[], left());
        if let Err(unmet) = met {
            let unmet = match unmet {
                GatherError::TimedOut { missing, .. } => {
                    GatherError::TimedOut { missing, waited: started.elapsed() }
                }
                other => other,
            };
            return Err(store.start_failed(unmet, started.elapsed()));
        }
        let settings =
            Settings { api: Arc::clone(&library.api), device, timeout: self.timeout, wait: self.wait };
        let world = Arc::new(World::new(rank, library, settings, store));
        let call = Call { operation: Operation::Group { ranks: everyone.clone() }, element: None };
        let group = world.make_group("world".to_owned(), everyone, rank, &call)?;
        Ok(NcclCommunicator::new(world, Arc::new(group)))
    }
}

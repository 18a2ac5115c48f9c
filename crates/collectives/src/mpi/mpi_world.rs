//! The world (the set of all ranks) whose ranks are processes of Open MPI.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::strategy_for_host;
use super::communicator::MpiCommunicator;
use super::pending_operations::{PendingOperations, WORLD};
use super::shared_operations::SharedOperations;
use super::{abort, library};
use crate::{Error, Result, WaitStrategy};

/// World whose ranks are processes started by Open MPI's `mpirun`: its settings, and its start.
///
/// ```no_run
/// use std::time::Duration;
///
/// use collectives::{Communicator, Group, HostBuffer, MpiWorld, ReduceOp};
///
/// let ranks = MpiWorld::new().with_timeout(Duration::from_secs(5)).communicator()?;
/// let mut sum = HostBuffer::from(vec![ranks.rank() as i64]);
/// ranks.all_reduce(&mut sum, ReduceOp::Sum, &mut ())?;
/// # Ok::<(), collectives::Error>(())
/// ```
///
/// A group created by [`split`](crate::Group::split) is freed when all its members have dropped its
/// last communicator and request. A group created by [`group`](crate::Group::group) is freed with
/// its parent. Open MPI has about 65,000 groups at a time. Creating more is an error, after which
/// the parent group cannot be used.
///
/// # Termination
///
/// MPI is finalized when the last communicator and the last request are dropped. This waits until
/// all ranks reach this point. If a process ends without it (for example because a communicator is
/// in a static), `mpirun` considers it failed and ends the whole job.
///
/// After a time-out or an error of the library, the affected group returns that error for all later
/// operations. MPI is then not finalized, because that would wait for the failed rank; a line on
/// standard error says so at the end. The program should end with an error, upon which `mpirun`
/// ends the job (unless `--enable-recovery` is given).
///
/// A panic of any thread ends the job within two seconds after its message is printed, even if it
/// would be caught. This is done by a panic hook. A program with its own hook sets it before it
/// calls [`communicator`](Self::communicator). A hook that is set later must call the previous one.
/// Otherwise the job ends only if the panic drops a communicator or a request.
#[derive(Debug, Clone)]
pub struct MpiWorld {
    wait: WaitStrategy,
    timeout: Duration,
    checks: bool,
}

impl Default for MpiWorld {
    fn default() -> Self {
        Self::new()
    }
}

impl MpiWorld {
    /// Creates a world with [`WaitStrategy::Park`], a time-out of 30 seconds and comparison of
    /// calls.
    #[must_use]
    pub fn new() -> Self {
        Self { wait: WaitStrategy::default(), timeout: Duration::from_secs(30), checks: true }
    }

    /// Sets the strategy by which this rank waits for others. MPI has no way to sleep until an
    /// event: a parking rank polls some hundred times, then every 10 to 100 microseconds. If there
    /// are more ranks than cores on the host, spinning ranks yield.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// Sets the time-out of operations: an operation that is not complete this long after its start
    /// fails. It must exceed the longest time between the calls of two ranks, and the longest time
    /// in which a rank neither polls nor waits for any request, because a rank makes progress on
    /// its operations only then.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets whether the ranks of an operation compare their calls before its data moves. Each rank
    /// sends a small message to every other (72 bytes, plus 16 a rank for an all-to-all-v). Without
    /// the comparison, the outcome of differing calls is MPI's, and late ranks cannot be told apart
    /// from slow ones. All ranks must pass the same value.
    #[must_use]
    pub fn with_checks(mut self, checks: bool) -> Self {
        self.checks = checks;
        self
    }

    /// Initializes MPI and returns this rank's communicator over all ranks. A program that was not
    /// started by `mpirun` is a world of one rank.
    ///
    /// The call changes the environment of the process, as Open MPI's initialization does: no other
    /// thread may read or change it meanwhile. It raises the size up to which messages within a
    /// host are sent without a handshake from 4 to 8 KiB, unless `OMPI_MCA_btl_vader_eager_limit`
    /// is set. A small all-reduce then needs one message.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this process has initialized MPI before, or if the library does
    /// not support several threads.
    pub fn communicator(&self) -> Result<MpiCommunicator> {
        let world = library::initialize()
            .map_err(|failure| Error::Unavailable { backend: library::NAME, reason: failure.0 })?;
        abort::abort_on_panic();
        let mut operations = PendingOperations::new(&world, self.timeout, self.checks);
        operations.retain(WORLD);
        let shared = SharedOperations::new(operations, strategy_for_host(self.wait));
        Ok(MpiCommunicator::new(Arc::new(shared), WORLD, world.rank, world.size))
    }
}

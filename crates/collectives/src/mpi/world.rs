//! The ranks of an MPI job.

use std::sync::Arc;
use std::time::Duration;

use super::backoff::affordable;
use super::communicator::MpiCommunicator;
use super::engine::{Engine, WORLD};
use super::shared::Shared;
use super::{abort, library};
use crate::{Error, Result, WaitStrategy};

/// Ranks that are processes, started by Open MPI's `mpirun`.
///
/// ```no_run
/// use std::time::Duration;
///
/// use collectives::{Communicator, Group, MpiWorld, ReduceOp};
///
/// let ranks = MpiWorld::new().with_timeout(Duration::from_secs(5)).communicator()?;
/// let mut sum = vec![ranks.rank() as i64];
/// ranks.all_reduce(&mut sum, ReduceOp::Sum, &mut ())?;
/// # Ok::<(), collectives::Error>(())
/// ```
///
/// A group that [`split`](crate::Group::split) made is freed when all its members have dropped its last communicator and
/// request; one that was asked for by [`group`](crate::Group::group), with that which it was asked for in. Open MPI has about
/// 65,000 at a time; making one more is an error, after which the group that it was to be made in is of no more use.
///
/// # How it ends
///
/// When the last communicator and the last request are dropped, MPI is finalised, which waits until all ranks come to
/// this point. A program whose process ends without (because a communicator lies in a static, say) is taken for a failed
/// one by `mpirun`, which ends the whole job.
///
/// After a time-out or an error of the library the group concerned gives that error for ever, and MPI is not finalised,
/// because that would wait for the rank that failed; a line on standard error says so at the end. The program should end with an error, upon which `mpirun` ends the
/// job (unless `--enable-recovery` tells it not to).
///
/// A panic of any thread ends the job within two seconds, after its message is printed; also one that would be caught. This
/// is done by a panic hook: a program with one of its own sets it before it asks for the communicator. One that is set later
/// must call the hook that it replaces; otherwise the job only ends where the panic drops a communicator or a request.
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
    /// A world whose ranks wait by [`WaitStrategy::Park`], at most for 30 seconds, and check each other's calls.
    #[must_use]
    pub fn new() -> Self {
        Self { wait: WaitStrategy::default(), timeout: Duration::from_secs(30), checks: true }
    }

    /// How this rank waits for others. MPI has nothing to sleep on: a parking rank polls some hundred times, and then
    /// every 10 to 100 microseconds. Ranks that are more than the host's cores do not spin, but yield.
    #[must_use]
    pub fn with_wait(mut self, strategy: WaitStrategy) -> Self {
        self.wait = strategy;
        self
    }

    /// How long after its start an operation that is not complete fails. Give more than the longest time between one
    /// rank's call and another's, and than the longest time for which a rank neither polls nor waits for anything: only
    /// then does it take part in what it has started.
    #[must_use]
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether the ranks of an operation compare their calls before its data moves, which costs each of them a small
    /// message to every other (72 bytes; 16 more a rank for an all-to-all-v). Without it, differing calls are whatever MPI
    /// makes of them, and a rank that is late is not told apart from one that is slow. All ranks give the same.
    #[must_use]
    pub fn with_checks(mut self, checks: bool) -> Self {
        self.checks = checks;
        self
    }

    /// Initialises MPI and gives this rank's communicator over all ranks. A program that was not started by `mpirun` is
    /// a world of one rank.
    ///
    /// It changes the environment of the process, as Open MPI does itself: no other thread may read or change it meanwhile. What
    /// is sent within a host without asking the receiver is raised from 4 to 8 KiB, unless the program's user has set it
    /// (`OMPI_MCA_btl_vader_eager_limit`): a small all-reduce is then one message.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if this process has done so before, or the library cannot be used by several threads.
    pub fn communicator(&self) -> Result<MpiCommunicator> {
        let world = library::initialise()
            .map_err(|failure| Error::Unavailable { backend: library::NAME, reason: failure.0 })?;
        abort::abort_on_panic();
        let mut engine = Engine::new(&world, self.timeout, self.checks);
        engine.retain(WORLD);
        let shared = Shared::new(engine, affordable(self.wait));
        Ok(MpiCommunicator::new(Arc::new(shared), WORLD, world.rank, world.size))
    }
}

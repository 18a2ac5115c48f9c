//! Ranks that are threads of this process.

use std::time::Duration;

use collectives::{Group, HostBuffer, ThreadWorld};
use layer_engine::{CpuEngine, ThreadPool};

use super::checkpoint::CheckpointWriter;
use super::programs::Programs;
use super::rank::Rank;
use super::session::run_rank;
use super::{Evaluation, Progress, TrainConfig, TrainReport, checkpoint};
use crate::Error;
use crate::runtime::{CpuThreads, TrainingBackend};

/// Maximum time for which ranks wait for each other, which is longer than any step of a layer.
const RANK_TIMEOUT: Duration = Duration::from_secs(600);

/// Trains on the processor, with one thread of this process per rank. A rank computes on its own
/// thread or on a shared pool.
///
/// The trained weights depend only on the configuration and the seed, and not on the ranks of
/// layers or the background jobs, up to the rounding of sums. Rank 0 calls `progress`.
///
/// # Errors
/// If the configuration is invalid, a checkpoint cannot be used, or a rank fails. The error is that
/// of the rank that failed, and not of ranks that waited for it.
pub fn train(config: &TrainConfig<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<TrainReport, Error> {
    config.check()?;
    let programs = Programs::new(config)?;
    let writer = CheckpointWriter::acquire(config)?;
    let found = checkpoint::find(config)?;
    let engine = engine(config)?;
    let world = ThreadWorld::new(config.placement().world()).with_timeout(RANK_TIMEOUT);
    let outcomes = world.run(|communicator| {
        let writer = writer.as_ref().filter(|_| communicator.rank() == 0);
        run_rank::<CpuThreads>(config, &programs, (&found, writer), &engine, communicator, &|at| progress(at))
    });
    first_result_or_error(outcomes)
}

/// Returns the results on the test samples of the network with the configured initial weights, on
/// the threads of [`train`].
///
/// # Errors
/// If the configuration is invalid, or a rank fails.
pub fn evaluate(config: &TrainConfig<'_>) -> Result<Evaluation, Error> {
    config.check()?;
    let (programs, engine) = (Programs::new(config)?, engine(config)?);
    let world = ThreadWorld::new(config.placement().world()).with_timeout(RANK_TIMEOUT);
    first_result_or_error(world.run(|communicator| {
        evaluate_initial(config, Rank::<CpuThreads>::new(config, &programs, engine.clone(), communicator)?)
    }))
}

/// Returns the results on the test samples of the network with the configured initial weights, as
/// computed by all ranks together. Each rank calls it.
///
/// # Errors
/// If the device or the communicator fails.
pub(super) fn evaluate_initial<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    mut rank: Rank<'_, B>,
) -> Result<Evaluation, Error> {
    if let Some(weights) = config.initial {
        weights.write_to(config.network(), rank.state())?;
    }
    rank.evaluate()
}

/// Returns the engine of all ranks.
fn engine(config: &TrainConfig<'_>) -> Result<CpuEngine<f32, HostBuffer<f32>>, Error> {
    if config.threads_per_rank == 1 {
        return Ok(CpuEngine::new());
    }
    let wanted = config.placement().world().saturating_mul(config.threads_per_rank);
    // If the number of cores is not known, it is assumed to be that of one rank's threads.
    let cores = std::thread::available_parallelism().map_or(config.threads_per_rank, std::num::NonZero::get);
    Ok(CpuEngine::sharing(&ThreadPool::new(wanted.min(cores))?, config.threads_per_rank))
}

/// Returns the result of rank 0 from the results by rank.
///
/// # Errors
/// The error of a rank that failed by itself, if there is one: ranks that lose a peer fail with the
/// error of a collective, and the peer's own error has the reason. Otherwise the first error.
pub(super) fn first_result_or_error<T: Default>(
    outcomes: impl IntoIterator<Item = Result<T, Error>>,
) -> Result<T, Error> {
    let mut first = None;
    let mut errors = Vec::new();
    for outcome in outcomes {
        match outcome {
            Ok(outcome) => first = first.or(Some(outcome)),
            Err(error) => errors.push(error),
        }
    }
    errors.sort_by_key(Error::is_consequence);
    match (errors.into_iter().next(), first) {
        (Some(error), _) => Err(error),
        (None, outcome) => Ok(outcome.unwrap_or_default()),
    }
}

//! Ranks that are threads of this process.

use std::time::Duration;

use collectives::ThreadWorld;
use layer_engine::{CpuEngine, ThreadPool};

use super::programs::Programs;
use super::rank::Rank;
use super::session::run_rank;
use super::{Progress, TrainConfig, TrainReport, checkpoint};
use crate::Error;
use crate::runtime::{CpuThreads, TrainingBackend};

/// How long ranks wait for each other before they give up: longer than any layer computes.
const PATIENCE: Duration = Duration::from_secs(600);

/// Trains on threads of this process, one a rank, each of which computes on its own thread or on those that all share.
///
/// What is computed depends on the configuration and the seed, not on the placement or the background job, up to the
/// rounding of sums. `progress` is called by rank 0.
///
/// # Errors
/// When the configuration is wrong, a checkpoint cannot be used, or a rank fails; then the error of the rank that
/// failed first, not of those that missed it.
pub fn train(config: &TrainConfig<'_>, progress: &(dyn Fn(Progress) + Sync)) -> Result<TrainReport, Error> {
    config.check()?;
    let (programs, found) = (Programs::new(config)?, checkpoint::find(config)?);
    let engine = engine(config)?;
    let world = ThreadWorld::new(config.placement().world()).with_timeout(PATIENCE);
    let outcomes = world.run(|communicator| {
        run_rank::<CpuThreads>(config, &programs, &found, &engine, communicator, &|at| progress(at))
    });
    of_first(outcomes)
}

/// The part of the held-out samples that a network classifies right, with the parameters that the configuration begins with.
///
/// # Errors
/// When the configuration is wrong, or a rank fails.
pub fn evaluate(config: &TrainConfig<'_>) -> Result<f64, Error> {
    config.check()?;
    let (programs, engine) = (Programs::new(config)?, engine(config)?);
    let world = ThreadWorld::new(config.placement().world()).with_timeout(PATIENCE);
    of_first(world.run(|communicator| {
        of_weights(config, Rank::<CpuThreads>::new(config, &programs, engine.clone(), communicator)?)
    }))
}

/// The part of the held-out samples that a rank's network classifies right, with the parameters that the configuration begins with.
pub(super) fn of_weights<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    mut rank: Rank<'_, B>,
) -> Result<f64, Error> {
    if let Some(weights) = config.initial {
        weights.write_to(config.network(), rank.state())?;
    }
    rank.evaluate()
}

/// The engine that all ranks use.
fn engine(config: &TrainConfig<'_>) -> Result<CpuEngine<f32>, Error> {
    if config.threads_per_rank == 1 {
        return Ok(CpuEngine::new());
    }
    let wanted = config.placement().world().saturating_mul(config.threads_per_rank);
    // Where the system does not say how many cores there are, as many threads as one rank may use.
    let cores = std::thread::available_parallelism().map_or(config.threads_per_rank, std::num::NonZero::get);
    Ok(CpuEngine::sharing(&ThreadPool::new(wanted.min(cores))?, config.threads_per_rank))
}

/// What the first rank returned, or the error of the rank that failed first: ranks that lost a peer fail with a collective's error, and the
/// peer's own error says why.
pub(super) fn of_first<T: Default>(outcomes: impl IntoIterator<Item = Result<T, Error>>) -> Result<T, Error> {
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

//! Training on the ranks that there are: threads of this process, or processes.

use std::time::Duration;

use deeppool::train::{Progress, TrainConfig, TrainReport, train};

use super::launched::Launched;

/// Trains on threads, or as one of the processes that a launcher started.
pub(crate) fn train_on(
    launched: Option<Launched>,
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    match launched {
        None => Ok(train(config, progress)?),
        Some(_) => train_by_mpi(config, timeout, progress),
    }
}

#[cfg(feature = "mpi")]
fn train_by_mpi(
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    use collectives::{MpiCommunicator, MpiWorld};
    use deeppool::runtime::Cpu;
    use deeppool::train::train_rank;
    use layer_engine::CpuEngine;

    let communicator = MpiWorld::new().with_timeout(timeout).communicator().map_err(deeppool::Error::from)?;
    let engine = CpuEngine::with_threads(config.threads_per_rank).map_err(deeppool::Error::from)?;
    let world = communicator.clone();
    let report = train_rank::<Cpu<MpiCommunicator>>(config, &engine, communicator, &|at| progress(at));
    if report.is_err() {
        // Finalising MPI would wait for the others, who wait for this rank: its end has to end them.
        std::mem::forget(world);
    }
    Ok(report?)
}

#[cfg(not(feature = "mpi"))]
fn train_by_mpi(
    _: &TrainConfig<'_>,
    _: Duration,
    _: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    anyhow::bail!(super::launched::WITHOUT_MPI)
}

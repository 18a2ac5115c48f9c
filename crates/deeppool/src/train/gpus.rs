//! Ranks with one GPU each: threads of this process, or processes.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use collectives::{Group, NcclCommunicator, NcclWorld, WaitStrategy};

use super::checkpoint::CheckpointWriter;
use super::image_orders::ImageOrders;
use super::programs::Programs;
use super::rank::Rank;
use super::session::{run_rank, train_rank};
use super::threads::{evaluate_initial, first_result_or_error};
use super::{Evaluation, Progress, TrainConfig, TrainReport, checkpoint};
use crate::Error;
use crate::runtime::{Gpu, GpuEngine};

/// Trains as [`train`](super::train) does, on this machine's GPUs: rank `r` is a thread with CUDA
/// device `r`. Ranks are connected by NCCL.
///
/// See [`GpuDriver`](crate::runtime::GpuDriver). `timeout` is the maximum time for which ranks wait
/// for each other. On emulated GPUs all reported times are virtual: steps take the durations of
/// [`emulated_times`](TrainConfig::emulated_times), and work on the host takes no time.
///
/// # Errors
/// As [`train`](super::train), and if there is no CUDA, no NCCL, or not one GPU per rank.
pub fn train_on_gpus(
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<TrainReport, Error> {
    config.check()?;
    let programs = Programs::new(config)?;
    let writer = CheckpointWriter::acquire(config)?;
    let found = checkpoint::find(config)?;
    first_result_or_error(on_gpus(config, timeout, |engine, communicator| {
        let writer = writer.as_ref().filter(|_| communicator.rank() == 0);
        run_rank::<Gpu>(config, &programs, (&found, writer), engine, communicator, &|at| progress(at))
    })?)
}

/// Returns the results of the initial weights on the test samples, as [`evaluate`](super::evaluate)
/// does, on the GPUs of [`train_on_gpus`]. `timeout` is the maximum time for which ranks wait for
/// each other.
///
/// # Errors
/// As [`train_on_gpus`].
pub fn evaluate_on_gpus(config: &TrainConfig<'_>, timeout: Duration) -> Result<Evaluation, Error> {
    config.check()?;
    let programs = Programs::new(config)?;
    first_result_or_error(on_gpus(config, timeout, |engine, communicator| {
        let orders = ImageOrders::choose::<Gpu>(config, &programs, engine, &communicator)?;
        let engine = orders.of_foreground::<Gpu>(engine);
        evaluate_initial(config, Rank::<Gpu>::new(config, &programs, engine, communicator)?)
    })?)
}

/// Trains as [`train_rank`] does, in one of the processes started by `torchrun`, or with its
/// environment variables: see [`NcclWorld::from_env`]. The rank uses the CUDA device whose number
/// is its rank among the processes of this machine. `timeout` is the maximum time for which ranks
/// wait for each other.
///
/// # Errors
/// As [`train_rank`], and if a variable is missing or invalid, or there is no CUDA, no NCCL or no
/// such GPU.
pub fn train_rank_on_gpu(
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &dyn Fn(Progress),
) -> Result<TrainReport, Error> {
    let world = NcclWorld::from_env()?.with_wait(WaitStrategy::Park).with_timeout(timeout);
    let engine = configured(GpuEngine::new(world.device())?, config);
    let communicator = world.connect_on(engine.context())?;
    let rank = communicator.rank();
    train_rank::<Gpu>(config, &engine, communicator, progress).map_err(|error| error.on_gpu_of(rank, None))
}

/// Returns an engine that chooses among kernels as configured.
fn configured(engine: GpuEngine, config: &TrainConfig<'_>) -> GpuEngine {
    let engine = engine.with_nondeterministic(config.nondeterministic);
    match config.kernels {
        Some(choice) => engine.with_choice(choice),
        None => engine,
    }
}

/// Runs a function on one thread per rank of the placement, with the first GPUs, connected by NCCL.
/// Returns the results by rank.
fn on_gpus<T: Send>(
    config: &TrainConfig<'_>,
    timeout: Duration,
    run: impl Fn(&GpuEngine, NcclCommunicator) -> Result<T, Error> + Sync,
) -> Result<Vec<Result<T, Error>>, Error> {
    // Opened first: if a GPU is missing, no rank waits for it.
    let ranks = config.placement().world();
    let engines = GpuEngine::of_ranks(ranks)?.into_iter().map(|engine| configured(engine, config));
    let engines: Vec<_> = engines.collect();
    let port = rendezvous()?;
    let on_gpu = |(rank, engine): (usize, GpuEngine)| {
        let world = NcclWorld::new(rank, ranks, rank)
            .with_address("127.0.0.1", port)
            .with_wait(WaitStrategy::Park)
            .with_timeout(timeout);
        run(&engine, world.connect_on(engine.context())?).map_err(|error| error.on_gpu_of(rank, None))
    };
    let outcomes = thread::scope(|scope| {
        let threads: Vec<_> = engines
            .into_iter()
            .enumerate()
            .map(|rank| {
                let on_gpu = &on_gpu;
                scope.spawn(move || on_gpu(rank))
            })
            .collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Vec<_>>()
    });
    Ok(outcomes)
}

/// Returns a free port of this host.
fn rendezvous() -> Result<u16, Error> {
    let failed =
        |error: std::io::Error| Error::Program(format!("the ranks have nowhere to meet: 127.0.0.1: {error}"));
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

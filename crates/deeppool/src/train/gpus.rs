//! Ranks that are threads of this process, each with a GPU of its own.

use std::hash::{BuildHasher, RandomState};
use std::net::TcpListener;
use std::panic::resume_unwind;
use std::thread;
use std::time::Duration;

use collectives::{NcclWorld, WaitStrategy};

use super::rank::Programs;
use super::session::run_rank;
use super::threads::of_first;
use super::{Progress, TrainConfig, TrainReport, checkpoint};
use crate::Error;
use crate::runtime::{Gpu, GpuEngine};

/// As [`train`](super::train), on this machine's GPUs: rank `r` is a thread with GPU `r`, and NCCL connects them.
///
/// See [`GpuDriver`](crate::runtime::GpuDriver) for how. `timeout` is how long ranks wait for each other. Where the GPUs are emulated, all
/// times are virtual: those of [`emulated_times`](TrainConfig::emulated_times), on a host that takes none.
///
/// # Errors
/// As [`train`](super::train); when there is no CUDA, no NCCL, or not a GPU for each rank.
pub fn train_on_gpus(
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> Result<TrainReport, Error> {
    config.check()?;
    let (programs, found) = (Programs::new(config)?, checkpoint::find(config)?);
    let ranks = config.placement.world();
    // Of a GPU that is lacking, no other rank waits to learn.
    let engines = GpuEngine::of_ranks(ranks)?;
    let (port, token) = meeting_place()?;
    let run = |(rank, engine): (usize, GpuEngine)| {
        let world = NcclWorld::new(rank, ranks, rank)
            .with_address("127.0.0.1", port)
            .with_token(token.as_str())
            .with_wait(WaitStrategy::Park)
            .with_timeout(timeout);
        let communicator = world.connect()?;
        run_rank::<Gpu>(config, &programs, &found, &engine, communicator, &|at| progress(at))
            .map_err(|error| error.on_gpu_of(rank, None))
    };
    let outcomes = thread::scope(|scope| {
        let threads: Vec<_> = engines
            .into_iter()
            .enumerate()
            .map(|rank| {
                let run = &run;
                scope.spawn(move || run(rank))
            })
            .collect();
        let joined =
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        joined.collect::<Vec<_>>()
    });
    of_first(outcomes)
}

/// A port of this host that is free, and a token that other processes do not know.
fn meeting_place() -> Result<(u16, String), Error> {
    let failed =
        |error: std::io::Error| Error::Program(format!("the ranks have nowhere to meet: 127.0.0.1: {error}"));
    let port =
        TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).map_err(failed)?.port();
    // The hasher's keys are random, and another process's are others.
    let random = RandomState::new().hash_one(port);
    Ok((port, format!("{random:016x}")))
}

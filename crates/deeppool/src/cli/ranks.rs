//! Training on the ranks that there are: threads of this process, or processes.

use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::ValueEnum;
use deeppool::train::{Progress, TrainConfig, TrainReport, train};
use emulated_gpus::NUMBER_VARIABLE;

use super::launched::Launched;

/// What ranks compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RankEngine {
    /// The processor of this machine
    Cpu,
    /// NVIDIA GPUs of this machine, one for each rank, where the feature cuda is built in
    Cuda,
}

impl RankEngine {
    /// Refuses ranks that this program cannot have, before there is any work.
    pub(crate) fn check(self, launched: Option<Launched>) -> anyhow::Result<()> {
        match (self, launched) {
            (Self::Cuda, Some(_)) => bail!(
                "ranks that are processes compute on processors: leave out --engine cuda, or the launcher (ranks on GPUs \
                 are threads)"
            ),
            (Self::Cuda, None) if !cfg!(feature = "cuda") => bail!(WITHOUT_CUDA),
            _ => Ok(()),
        }
    }

    /// The device whose layer times plans are made with, where nothing else is said.
    pub(crate) fn device_model(self) -> &'static str {
        match self {
            Self::Cpu => "cpu-core",
            Self::Cuda => "a100",
        }
    }

    /// How many of the GPUs that it computes on are emulated, as the environment says; `None` where they are real, or none.
    pub(crate) fn emulated_gpus(self) -> Option<String> {
        let number = std::env::var(NUMBER_VARIABLE).ok()?;
        (self == Self::Cuda && !number.is_empty() && number != "0").then_some(number)
    }
}

/// Begins this program anew with emulated GPUs, unless it has them: the emulator reads how many at its start.
pub(crate) fn emulate(engine: RankEngine, gpus: usize) -> anyhow::Result<()> {
    if engine != RankEngine::Cuda {
        bail!("--emulate-gpus is for ranks on GPUs: give --engine cuda as well");
    }
    let gpus = gpus.to_string();
    if !cfg!(feature = "cuda") || std::env::var(NUMBER_VARIABLE).is_ok_and(|number| number == gpus) {
        return Ok(());
    }
    begin_anew(&gpus)
}

#[cfg(unix)]
fn begin_anew(emulated_gpus: &str) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;

    let program = std::env::current_exe().context("this program cannot be found, to begin it anew")?;
    let mut again = std::process::Command::new(program);
    Err(again.args(std::env::args_os().skip(1)).env(NUMBER_VARIABLE, emulated_gpus).exec())
        .context("begin anew")
}

#[cfg(not(unix))]
fn begin_anew(emulated_gpus: &str) -> anyhow::Result<()> {
    bail!("set the variable {NUMBER_VARIABLE}={emulated_gpus} for this")
}

/// What is wrong where ranks are to be GPUs and cannot be.
const WITHOUT_CUDA: &str = "this deeppool was built without CUDA: build with `--features cuda`";

/// Trains on threads, or as one of the processes that a launcher started.
pub(crate) fn train_on(
    engine: RankEngine,
    launched: Option<Launched>,
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    match (engine, launched) {
        (RankEngine::Cpu, None) => Ok(train(config, progress)?),
        (RankEngine::Cpu, Some(_)) => train_by_mpi(config, timeout, progress),
        (RankEngine::Cuda, _) => train_by_cuda(config, timeout, progress),
    }
}

#[cfg(feature = "cuda")]
fn train_by_cuda(
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    Ok(deeppool::train::train_on_gpus(config, timeout, progress)?)
}

#[cfg(not(feature = "cuda"))]
fn train_by_cuda(
    _: &TrainConfig<'_>,
    _: Duration,
    _: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    bail!(WITHOUT_CUDA)
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
    bail!(super::launched::WITHOUT_MPI)
}

//! Training with ranks that are threads or processes, on the processor or on GPUs. Emulated GPUs
//! are a library in place of CUDA and NCCL that executes kernels on the processor.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use command_line::numbers::within;
use deeppool::train::{Evaluation, Progress, TrainConfig, TrainReport, evaluate, train};
use layer_engine::Precision;
use layer_profile::NumberFormat;

use super::launched::{Launched, Launcher};

/// Environment variable with the number of emulated GPUs, which the crate `cuda` reads.
const NUMBER_VARIABLE: &str = "DEEPPOOL_EMULATED_GPUS";

/// Valid numbers of emulated GPUs.
const EMULATED: RangeInclusive<usize> = 1..=8;

/// Options for the engine.
#[derive(Args)]
pub(crate) struct EngineArgs {
    /// Engine of the ranks [default: cpu, or cuda with --emulate-gpus]
    #[arg(long, value_enum)]
    engine: Option<RankEngine>,
    #[command(flatten)]
    emulated: EmulatedArgs,
}

impl EngineArgs {
    /// Returns the engine of the ranks.
    pub(crate) fn engine(&self) -> RankEngine {
        let default = if self.emulated.is_requested() { RankEngine::Cuda } else { RankEngine::Cpu };
        self.engine.unwrap_or(default)
    }

    /// Returns the requested number of emulated GPUs. `None` if none are requested.
    pub(crate) fn emulated_gpus(&self) -> Option<usize> {
        self.emulated.emulate_gpus
    }

    /// Restarts this program with emulated GPUs if they are requested and it does not have them.
    ///
    /// # Errors
    /// If the engine does not run on GPUs, or the restart fails.
    pub(crate) fn emulate(&self) -> anyhow::Result<()> {
        self.emulated.emulate(self.engine() == RankEngine::Cuda)
    }
}

/// Options for emulated GPUs.
#[derive(Args)]
pub(crate) struct EmulatedArgs {
    /// Emulate this number of NVIDIA GPUs. The processor executes their kernels, far more slowly
    /// than the engine cpu (see emulator/cuda-emulator)
    #[arg(long, value_name = "COUNT", value_parser = within(EMULATED))]
    emulate_gpus: Option<usize>,
}

impl EmulatedArgs {
    /// Returns whether emulated GPUs are requested.
    pub(crate) fn is_requested(&self) -> bool {
        self.emulate_gpus.is_some()
    }

    /// Restarts this program with emulated GPUs if they are requested and it does not have them.
    /// The emulator reads their number at its start. `is_cuda` says whether the engine runs on
    /// GPUs.
    ///
    /// # Errors
    /// If the engine does not run on GPUs, or the restart fails.
    pub(crate) fn emulate(&self, is_cuda: bool) -> anyhow::Result<()> {
        let Some(gpus) = self.emulate_gpus else { return Ok(()) };
        if !is_cuda {
            bail!("--emulate-gpus is for ranks on GPUs: give --engine cuda, or leave --engine out");
        }
        let gpus = gpus.to_string();
        if !cfg!(feature = "cuda") || std::env::var(NUMBER_VARIABLE).is_ok_and(|number| number == gpus) {
            return Ok(());
        }
        restart(&gpus)
    }
}

/// Engine of the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RankEngine {
    /// Processor of this machine
    Cpu,
    /// NVIDIA GPUs of this machine, one per rank; needs the feature cuda
    Cuda,
}

impl RankEngine {
    /// Checks that the engine supports the launcher, and returns the place of this process among
    /// those of the launcher; `None` if ranks are threads of this process.
    ///
    /// # Errors
    /// If this build does not support the engine, or the engine does not support the launcher.
    pub(crate) fn check(self, launched: Option<Launched>) -> anyhow::Result<Option<Launched>> {
        match (self, launched.map(|launched| launched.launcher)) {
            (Self::Cuda, _) if !cfg!(feature = "cuda") => bail!(WITHOUT_CUDA),
            (Self::Cuda, Some(Launcher::Mpi)) => bail!(
                "processes on GPUs meet by NCCL: start them with torchrun, not by MPI, or leave out the \
                 launcher (ranks are threads then)"
            ),
            (Self::Cpu, Some(Launcher::Torchrun)) if launched.is_some_and(|launched| launched.ranks == 1) => {
                Ok(None)
            }
            (Self::Cpu, Some(Launcher::Torchrun)) => bail!(
                "torchrun started this, whose ranks would need NCCL: start ranks with `deeppool launch`, \
                 mpirun or \
                 `srun --mpi=pmix`, or give --engine cuda"
            ),
            _ => Ok(launched),
        }
    }

    /// Returns the name of the device model that plans use by default.
    pub(crate) fn device_model(self) -> &'static str {
        match self {
            Self::Cpu => "cpu-core",
            Self::Cuda => "a100",
        }
    }

    /// Returns the number of emulated GPUs from the environment. `None` if the engine does not use
    /// emulated GPUs.
    pub(crate) fn emulated_gpus(self) -> Option<String> {
        let number = std::env::var(NUMBER_VARIABLE).ok()?;
        (self == Self::Cuda && !number.is_empty() && number != "0").then_some(number)
    }
}

/// Precision of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LayerPrecision {
    /// Single precision
    F32,
    /// Factors rounded to TF32 where cuDNN or cuBLASLt compute, sums in single precision
    Tf32,
    /// Outputs, their gradients and parameters in 16 bits, with master parameters in f32
    Bf16,
}

impl LayerPrecision {
    /// Returns the precision of kernels.
    pub(crate) fn precision(self) -> Precision {
        match self {
            Self::F32 => Precision::F32,
            Self::Tf32 => Precision::Tf32,
            Self::Bf16 => Precision::Bf16,
        }
    }

    /// Returns the number format of the products of a device model.
    pub(crate) fn format(self) -> NumberFormat {
        match self {
            Self::F32 => NumberFormat::Fp32,
            Self::Tf32 => NumberFormat::Tf32,
            Self::Bf16 => NumberFormat::Half,
        }
    }

    /// Returns the precision for ranks on an engine.
    ///
    /// # Errors
    /// If the engine does not compute in this precision.
    pub(crate) fn of(self, engine: RankEngine) -> anyhow::Result<Precision> {
        if (self, engine) == (Self::Tf32, RankEngine::Cpu) {
            bail!("--precision tf32 is for GPUs: give --engine cuda, or leave it out")
        }
        Ok(self.precision())
    }
}

#[cfg(unix)]
fn restart(emulated_gpus: &str) -> anyhow::Result<()> {
    use std::os::unix::process::CommandExt;

    let program = std::env::current_exe().context("this program cannot be found, to begin it anew")?;
    let mut command = std::process::Command::new(program);
    Err(command.args(std::env::args_os().skip(1)).env(NUMBER_VARIABLE, emulated_gpus).exec())
        .context("begin anew")
}

#[cfg(not(unix))]
fn restart(emulated_gpus: &str) -> anyhow::Result<()> {
    bail!("set the variable {NUMBER_VARIABLE}={emulated_gpus} for this")
}

/// Error message of builds without CUDA.
pub(crate) const WITHOUT_CUDA: &str = "this deeppool was built without CUDA: build with `--features cuda`";

/// Trains with ranks that are threads, if `launched` is `None`, or as the one rank that it
/// describes. `timeout` is the maximum time for which processes and ranks on GPUs wait for each
/// other. `progress` is called on rank 0.
///
/// # Errors
/// Those of training, and if this build lacks CUDA or MPI.
pub(crate) fn train_on(
    engine: RankEngine,
    launched: Option<Launched>,
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    match (engine, launched) {
        (RankEngine::Cpu, _) => {
            on_processors(launched, config.threads_per_rank, timeout, |train| train(config, progress))
        }
        (RankEngine::Cuda, _) => train_by_cuda(launched.is_some(), config, timeout, progress),
    }
}

/// Returns the results of the configured initial weights on the test samples. `timeout` is the
/// maximum time for which ranks on GPUs wait for each other.
///
/// # Errors
/// If the engine fails, or this build lacks CUDA.
pub(crate) fn evaluate_on(
    engine: RankEngine,
    config: &TrainConfig<'_>,
    timeout: Duration,
) -> anyhow::Result<Evaluation> {
    match engine {
        RankEngine::Cpu => Ok(evaluate(config)?),
        RankEngine::Cuda => evaluate_by_cuda(config, timeout),
    }
}

#[cfg(feature = "cuda")]
fn train_by_cuda(
    is_process: bool,
    config: &TrainConfig<'_>,
    timeout: Duration,
    progress: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    if is_process {
        return Ok(deeppool::train::train_rank_on_gpu(config, timeout, progress)?);
    }
    Ok(deeppool::train::train_on_gpus(config, timeout, progress)?)
}

#[cfg(feature = "cuda")]
fn evaluate_by_cuda(config: &TrainConfig<'_>, timeout: Duration) -> anyhow::Result<Evaluation> {
    Ok(deeppool::train::evaluate_on_gpus(config, timeout)?)
}

#[cfg(not(feature = "cuda"))]
fn train_by_cuda(
    _: bool,
    _: &TrainConfig<'_>,
    _: Duration,
    _: &(dyn Fn(Progress) + Sync),
) -> anyhow::Result<TrainReport> {
    bail!(WITHOUT_CUDA)
}

#[cfg(not(feature = "cuda"))]
fn evaluate_by_cuda(_: &TrainConfig<'_>, _: Duration) -> anyhow::Result<Evaluation> {
    bail!(WITHOUT_CUDA)
}

/// A training run on all ranks, of which the progress is reported on rank 0.
type TrainOnProcessors<'a> =
    dyn Fn(&TrainConfig<'_>, &(dyn Fn(Progress) + Sync)) -> Result<TrainReport, deeppool::Error> + 'a;

/// Calls `run` with a function that trains on processors, and may be called repeatedly: with ranks
/// that are threads, if `launched` is `None`, or as the one rank that it describes.
///
/// # Errors
/// That of `run`, and if this build lacks MPI.
pub(crate) fn on_processors<T>(
    launched: Option<Launched>,
    threads_per_rank: usize,
    timeout: Duration,
    run: impl FnOnce(&TrainOnProcessors<'_>) -> Result<T, deeppool::Error>,
) -> anyhow::Result<T> {
    match launched {
        None => Ok(run(&train)?),
        Some(_) => by_mpi(threads_per_rank, timeout, run),
    }
}

#[cfg(feature = "mpi")]
fn by_mpi<T>(
    threads_per_rank: usize,
    timeout: Duration,
    run: impl FnOnce(&TrainOnProcessors<'_>) -> Result<T, deeppool::Error>,
) -> anyhow::Result<T> {
    use collectives::{MpiCommunicator, MpiWorld};
    use deeppool::runtime::Cpu;
    use deeppool::train::train_rank;
    use layer_engine::CpuEngine;

    let world = MpiWorld::new().with_timeout(timeout).communicator().map_err(deeppool::Error::from)?;
    let engine = CpuEngine::with_threads(threads_per_rank).map_err(deeppool::Error::from)?;
    let result = run(&|config, progress| {
        train_rank::<Cpu<MpiCommunicator>>(config, &engine, world.clone(), &|at| progress(at))
    });
    if result.is_err() {
        // Finalising MPI would deadlock, because the other ranks wait for this one. The end of this
        // process ends them.
        std::mem::forget(world);
    }
    Ok(result?)
}

#[cfg(not(feature = "mpi"))]
fn by_mpi<T>(
    _: usize,
    _: Duration,
    _: impl FnOnce(&TrainOnProcessors<'_>) -> Result<T, deeppool::Error>,
) -> anyhow::Result<T> {
    bail!(super::launched::WITHOUT_MPI)
}

//! The subcommand that a process started by `mpirun` executes.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::Args;
use collectives::{Group, MpiWorld};
use command_line::files::Printer;

use super::open_mpi::OpenMpi;
use crate::coll::CollOperation;
use crate::coll::backend::{Backend, Implementation, Wait};
use crate::coll::bench_rank::BenchOperation;
use crate::coll::timing::{SampleOptions, Samples, Task, measure};

/// Time limit of one execution of an operation. A rank that waits longer fails.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(60);

/// Arguments of a process that is one rank.
#[derive(Args)]
pub(crate) struct RankArgs {
    #[arg(long)]
    backend: Backend,
    #[arg(long, default_value = "park")]
    wait: Wait,
    #[arg(long)]
    samples: usize,
    #[arg(long)]
    min_time_ns: u64,
    /// Task such as `all-reduce:4096`
    #[arg(value_parser = parse_task)]
    tasks: Vec<Task>,
}

impl RankArgs {
    /// Returns the arguments of a rank that measures the tasks, without the program's name. Copies
    /// are left out.
    pub(super) fn command_line(
        implementation: Implementation,
        tasks: &[Task],
        sample_options: SampleOptions,
    ) -> Vec<String> {
        let mut arguments = vec!["mpi-rank".to_owned(), format!("--backend={}", implementation.backend())];
        arguments.extend(implementation.wait().map(|wait| format!("--wait={}", wait.name())));
        arguments.push(format!("--samples={}", sample_options.samples));
        arguments.push(format!("--min-time-ns={}", sample_options.min_time.as_nanos()));
        arguments.extend(tasks.iter().filter_map(|task| match task.operation {
            BenchOperation::Measured(operation) => Some(format!("{operation}:{}", task.bytes)),
            BenchOperation::Copy | BenchOperation::StridedCopy => None,
        }));
        arguments
    }

    /// Measures the tasks on this process's rank. Rank 0 prints the samples as one line of JSON.
    ///
    /// # Errors
    /// If MPI cannot be initialized, or if a measurement fails.
    pub(crate) fn run(&self) -> anyhow::Result<()> {
        let sample_options =
            SampleOptions { samples: self.samples, min_time: Duration::from_nanos(self.min_time_ns) };
        let (rank, samples) = match self.backend {
            Backend::Mpi => {
                let world = MpiWorld::new().with_wait(self.wait.strategy()).with_timeout(OPERATION_TIMEOUT);
                let mut ranks = world.communicator()?;
                let samples: anyhow::Result<Vec<Samples>> =
                    self.tasks.iter().map(|&task| measure(&mut ranks, task, sample_options)).collect();
                (Group::rank(&ranks), samples?)
            }
            Backend::OpenMpi => {
                let universe = mpi::initialize().context("MPI was initialised before")?;
                let mut ranks = OpenMpi::new(&universe);
                let samples: anyhow::Result<Vec<Samples>> =
                    self.tasks.iter().map(|&task| measure(&mut ranks, task, sample_options)).collect();
                (crate::coll::bench_rank::BenchRank::rank(&ranks), samples?)
            }
            Backend::Threads => bail!("ranks of the backend `threads` are no processes"),
        };
        if rank == 0 {
            let samples = samples.into_iter().map(|samples| (samples.times_us, samples.iterations));
            let samples = serde_json::to_string(&samples.collect::<Vec<_>>())?;
            Printer::Stdout.line(format_args!("{samples}"))?;
        }
        Ok(())
    }
}

/// Parses the last line of rank 0's output into the samples of each task. A library may have
/// printed other lines before.
///
/// # Errors
/// If there is no such line, or if it does not have samples of `tasks` tasks.
pub(super) fn parse(output: &str, tasks: usize) -> anyhow::Result<Vec<Samples>> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty()).context("nothing")?;
    let samples: Vec<(Vec<f64>, u64)> = serde_json::from_str(line).with_context(|| line.to_owned())?;
    ensure!(samples.len() == tasks, "{} times for {tasks} operations", samples.len());
    Ok(samples.into_iter().map(|(times_us, iterations)| Samples { times_us, iterations }).collect())
}

fn parse_task(text: &str) -> Result<Task, String> {
    let (operation, bytes) = text.split_once(':').ok_or("expected OP:BYTES")?;
    let operation: CollOperation =
        operation.parse().map_err(|error: collectives::Error| error.to_string())?;
    let bytes = bytes.parse().map_err(|_| "expected OP:BYTES")?;
    Ok(Task { operation: BenchOperation::Measured(operation), bytes })
}

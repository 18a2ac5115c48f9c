//! Tests of the MPI backend: the laws, and failing ranks.
//!
//! Without arguments, this program starts itself under `mpirun` for each trial. With `--rank
//! TRIAL`, it is one rank of the trial.

mod mpi_ranks;
mod mpi_runs;
mod suite;

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("--rank"), Some(trial)) => mpi_ranks::run(&trial, &arguments.collect::<Vec<_>>()),
        _ => mpi_runs::run(),
    }
}

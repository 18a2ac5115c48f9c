//! The laws on MPI, and what becomes of ranks that fail.
//!
//! This program is both sides: without arguments of its own it starts itself under `mpirun` for each trial; as
//! `--rank TRIAL` it is one rank of it.

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

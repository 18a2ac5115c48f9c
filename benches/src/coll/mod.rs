//! The command `coll-bench`: measures collectives in the style of the OSU micro-benchmarks.

mod backend;
mod bench_rank;
mod fit;
mod machine;
mod measure;
mod memory;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "without_mpi.rs"]
mod mpi;
mod operation;
mod report;
mod results;
mod rounds;
mod size;
mod table;
mod threads;
mod timing;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command;
use fit::FitFiles;
use measure::Measure;
pub use operation::CollOperation;
pub use report::{CollReport, CollRow, Machine};

#[derive(Parser)]
#[command(version, name = "coll-bench", max_term_width = 110, args_conflicts_with_subcommands = true)]
#[command(about = "Measure the time and bandwidth of collective operations of several backends")]
#[command(after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    measure: Measure,
}

#[derive(Subcommand)]
enum Command {
    Fit(FitFiles),
    #[cfg(feature = "mpi")]
    #[command(hide = true)]
    MpiRank(mpi::RankArgs),
}

const EXAMPLES: &str = "\
Sizes and bandwidths are those of nccl-tests. The size is the larger of a rank's send and receive buffer. The
bus bandwidth is size / time, times 2(k-1)/k for an all-reduce, (k-1)/k for a reduce-scatter, an all-gather,
an all-to-all and a redistribution, and 1 for a broadcast and a send (one direction of a ping-pong). Elements
are f32, reductions are sums, and the time is that of the slowest rank. For an all-reduce, the time in which
all ranks copy the same number of bytes between two of their buffers is shown, too. An all-reduce in place
touches less memory and can be faster.

A redistribution turns a matrix of about 1024 columns, divided by rows, into the same matrix divided by
columns. Its size is that of the part of one rank. The times in which all ranks copy a part between two of
their own buffers are shown, too: in one piece, and in pieces of one row of the target. Open MPI redistributes
by MPI_Alltoallw with subarrays.

Ranks wait by spinning, by yielding their core between polls, or by parking after some hundred polls. Ranks
that are processes are started by mpirun in each round. NCCL is not measured here: use nccl-tests.

Examples:
  coll-bench --ranks 4 --sizes 4KiB,4MiB
  coll-bench --ranks 4 --backend threads,open-mpi --wait spin --json
  coll-bench --ranks 2,3,4 --op all-reduce,broadcast --wait park -o measured.json
  coll-bench fit measured.json --backend threads";

/// Runs the command on the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    command::run(|cli: Cli| match cli.command {
        None => cli.measure.run(),
        Some(Command::Fit(fit)) => fit.run(),
        #[cfg(feature = "mpi")]
        Some(Command::MpiRank(rank)) => rank.run(),
    })
}

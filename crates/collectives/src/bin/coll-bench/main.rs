//! Measures collectives in the style of the OSU micro-benchmarks.

mod backend;
mod contender;
mod fit;
mod machine;
mod measure;
mod measuring;
mod memory;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "without_mpi.rs"]
mod mpi;
mod output;
mod results;
mod rounds;
mod size;
mod statistics;
mod table;
mod threads;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use fit::FitFiles;
use measure::Measure;

#[derive(Parser)]
#[command(version, name = "coll-bench", max_term_width = 110, args_conflicts_with_subcommands = true)]
#[command(about = "Measure collective operations side by side: how long they take, and at what bandwidth")]
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
Sizes and bandwidths are nccl-tests': the size is the larger of a rank's send and receive buffer, and the bus
bandwidth is the size by the time, times 2(k-1)/k for an all-reduce, (k-1)/k for a reduce-scatter, an all-gather
and an all-to-all, and 1 for a broadcast and a send (one way of a ping-pong). Elements are f32, reductions are
sums, and the time is the slowest rank's. Beside an all-reduce stands how long it takes all ranks at once to copy
as many bytes from one buffer of theirs to another; working in place touches less memory and can be faster still.

Ranks wait by spinning, by yielding their core between polls, or by parking after some hundred polls. Ranks that
are processes are started by mpirun, anew in each round. NCCL is not measured here: nccl-tests does that.

Examples:
  coll-bench --ranks 4 --sizes 4KiB,4MiB
  coll-bench --ranks 4 --backend threads,open-mpi --wait spin --json
  coll-bench --ranks 2,3,4 --op all-reduce,broadcast --wait park -o measured.json
  coll-bench fit measured.json --backend threads";

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        None => cli.measure.run(),
        Some(Command::Fit(fit)) => fit.run(),
        #[cfg(feature = "mpi")]
        Some(Command::MpiRank(rank)) => rank.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}")));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}

/// What was asked for cannot be done, and nothing was.
#[derive(Debug)]
struct BadInput(String);

impl std::fmt::Display for BadInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

fn bad_input(reason: impl Into<String>) -> anyhow::Error {
    BadInput(reason.into()).into()
}

/// A message without its line breaks, and without the usage that clap adds.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

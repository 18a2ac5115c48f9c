//! The command `mux-bench`: measures a foreground and a background job on one device, by policy.

mod bench;
mod calibration;
mod chart;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fit;
mod foreground_fit;
mod policies;
mod report;
mod row;
mod table;
mod task;
mod virtual_device;
mod workload;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command;
use bench::Bench;
pub use calibration::{Calibration, Chain, KernelTimeErrors, Sharing};
use fit::Fit;
pub use report::{MuxReport, MuxRow};

#[derive(Parser)]
#[command(version, name = "mux-bench", max_term_width = 110, args_conflicts_with_subcommands = true)]
#[command(about = "Measure a foreground and a background job on one device, by policy")]
#[command(after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Command {
    Fit(Fit),
}

const EXAMPLES: &str = "\
Every policy runs the same two jobs. The policies are the presets, and the techniques of the default policy
added one by one to `naive`. A slowdown is the time beside the background divided by the time alone. The share
of idle is the fraction of the idle time, in which the foreground neither computes nor transfers, with a
background tasklet on the device. Results of the virtual device are modelled: it runs in virtual time, is
deterministic, and is independent of this machine.

Examples:
  mux-bench
  mux-bench --policy default --policy deeppool --json
  mux-bench --workload workload.json --parameters card.json --svg policies.svg
  mux-bench --device cpu --ranks 2 --iterations 200
  mux-bench fit measured.json --out card.json

The exit code is 2 for invalid options or files, and 1 for a failure, for example if --device cuda finds no
GPU or no NVRTC.";

/// Runs the command on the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    command::run(|cli: Cli| match cli.command {
        None => cli.bench.run(),
        Some(Command::Fit(fit)) => fit.run(),
    })
}

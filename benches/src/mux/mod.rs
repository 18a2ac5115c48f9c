//! The command `mux-bench`: measures what a background job costs a foreground job, and what it gets, by policy.

mod bench;
mod calibration;
mod chart;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fit;
mod policies;
mod report;
mod row;
mod table;
mod task;
mod virtual_device;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::command;
use bench::Bench;
pub use calibration::{Calibration, Chain, KernelsOff, Sharing};
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
Every policy runs the same two jobs: the presets, and then the techniques of the default policy added one by one to
`naive`. Slow-downs are times beside the background by times alone; the share of idle is the part of the time in which
the foreground has nothing to compute and transfers nothing that a background tasklet was on the device. Figures of the
virtual device are modelled: it runs in virtual time, always gives the same, and says nothing about this machine.

Examples:
  mux-bench
  mux-bench --policy default --policy deeppool --json
  mux-bench --workload workload.json --parameters card.json --svg policies.svg
  mux-bench --device cpu --ranks 2 --iterations 200
  mux-bench fit measured.json --out card.json

It exits with 2 for a question or a file that makes no sense, and with 1 when it fails, as it does without the GPU or
the NVRTC that --device cuda needs.";

/// Runs the command on the arguments of this process.
#[must_use]
pub fn main() -> ExitCode {
    command::run(|cli: Cli| match cli.command {
        None => cli.bench.run(),
        Some(Command::Fit(fit)) => fit.run(),
    })
}

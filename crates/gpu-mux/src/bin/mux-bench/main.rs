//! Measures what a background job costs a foreground job, and what it gets, by policy.

mod bench;
mod chart;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod fit;
mod output;
mod policies;
mod row;
mod table;
mod virtual_device;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Parser, Subcommand};

use bench::Bench;
use fit::Fit;

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
        None => cli.bench.run(),
        Some(Command::Fit(fit)) => fit.run(),
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

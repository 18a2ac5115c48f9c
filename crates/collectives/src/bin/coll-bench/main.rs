//! Measures collectives in the style of the OSU micro-benchmarks.

mod backend;
mod contender;
mod machine;
mod measure;
mod measuring;
mod results;
mod rounds;
mod size;
mod statistics;
mod table;
mod threads;

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use measure::Measure;

/// Measure collective operations side by side: how long they take, and at what bandwidth
#[derive(Parser)]
#[command(version, about, name = "coll-bench", max_term_width = 110, after_help = EXAMPLES)]
struct Cli {
    #[command(flatten)]
    measure: Measure,
}

const EXAMPLES: &str = "Sizes and bandwidths are nccl-tests': the size is the larger of a rank's send and receive \
buffer, and the bus bandwidth is the size by the time, times 2(k-1)/k for an all-reduce, (k-1)/k for a \
reduce-scatter, an all-gather and an all-to-all, and 1 for a broadcast and a send. Elements are f32; reductions \
are sums. A send is one way of a ping-pong between two ranks. \
A rank waits by spinning, by yielding its core between polls, or by parking its thread after some hundred polls.

Examples:
  coll-bench --ranks 4 --sizes 4KiB,4MiB
  coll-bench --ranks 2,4 --op all-reduce,broadcast --wait park --json -o measured.json";

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
    match cli.measure.run() {
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

/// A message without its line breaks, and without the usage that clap adds.
fn one_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ")
}

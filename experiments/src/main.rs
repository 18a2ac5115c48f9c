//! Comparisons of burst parallelism with its alternatives, one subcommand each.
//!
//! `validate` and `search-time` measure; all other experiments simulate. A simulation runs the
//! program that the runtime would execute in virtual time, with layer times of a device model and
//! collective times of a link model. Each experiment prints a table and writes a CSV file, a JSON
//! report and, for most experiments, figures.

mod all;
mod canvas;
mod catalog;
mod cli;
mod experiment;
mod grid;
mod hybrid;
mod jigsaw;
mod job;
mod journal;
mod layer_times;
mod layers;
mod left_out;
mod limits;
mod machine;
mod options;
mod outcome;
mod page;
mod part;
mod partition;
#[cfg(feature = "pdf")]
mod pdf;
mod plans;
mod progress;
mod published;
mod qos;
mod report;
mod row;
mod scale;
mod search_time;
mod sensitivity;
mod sharing;
#[cfg(feature = "measure")]
mod spb;
mod splits;
mod statistics;
mod style;
mod sweep;
mod testbed;
mod text_table;
mod throughput;
#[cfg(feature = "measure")]
mod validate;
mod workload;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}

//! The comparisons that burst parallelism is judged by, one subcommand each.
//!
//! Everything but `validate` and `search-time` is simulated: the same programs that the runtime executes, in virtual time, with
//! layer times of a device model and the collectives' times of a link model. Each experiment leaves a table on stdout, and a CSV, a
//! JSON report and most of them figures in a folder.

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
#[cfg(feature = "measure")]
mod spb;
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

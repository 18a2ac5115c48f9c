//! The comparisons that burst parallelism is judged by, one subcommand each.
//!
//! Everything here is simulated: the same programs that the runtime executes, in virtual time, with layer times of a
//! device model and the collectives' times of a link model. Each experiment leaves a table on stdout, and a CSV, an SVG
//! and a JSON report in a folder.

mod all;
mod canvas;
mod catalog;
mod cli;
mod experiment;
mod figure;
mod grid;
mod job;
mod journal;
mod layers;
mod limits;
mod options;
mod outcome;
mod page;
mod part;
mod partition;
mod plans;
mod progress;
mod published;
mod qos;
mod report;
mod row;
mod scale;
mod sensitivity;
mod sharing_table;
mod style;
mod sweep;
mod table;
mod testbed;
mod throughput;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}

//! The comparisons that burst parallelism is judged by, one subcommand each.
//!
//! Everything but `validate` and `search-time` is simulated: the same programs that the runtime executes, in virtual time, with
//! layer times of a device model and the collectives' times of a link model. Each experiment leaves a table on stdout, and a CSV, a
//! JSON report and most of them an SVG in a folder.

mod choice;
mod cli;
mod figure;
mod job;
mod layers;
mod machine;
mod outcome;
mod page;
mod partition;
mod progress;
mod qos;
mod report;
mod row;
mod scale;
mod search_time;
mod sensitivity;
mod sharing_table;
mod statistics;
mod style;
mod sweep;
mod table;
mod testbed;
mod throughput;
mod validate;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}

//! The `deeppool` command.

mod background;
mod background_spec;
mod calibrate;
mod checkpoints;
mod cluster_jobs;
mod compare;
mod compare_figure;
mod compare_trace;
mod completions;
mod costs;
mod counts;
mod difference;
mod epoch_journal;
mod epochs;
mod eval;
mod explanations;
mod export;
mod fit;
mod free_memory;
mod graph;
mod import_profile;
mod inputs;
mod job_script;
mod kernels;
mod kineto;
mod launch;
mod launched;
mod left_out;
mod lower;
mod man;
mod measured;
mod models;
mod mpirun_messages;
mod network;
mod output;
mod plan;
mod plan_table;
mod problem;
mod profile;
mod progress;
mod rank_times;
mod ranks;
mod run_progress;
mod segment_folder;
mod signal;
mod simulate;
mod slurm;
mod to_accuracy;
mod train;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use command_line::files::is_write_failure;
use command_line::one_line;

/// Burst-parallel training: plan, simulate and train networks whose layers each have their own
/// number of GPUs.
#[derive(Parser)]
#[command(name = "deeppool", version, about, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Models(models::Models),
    Profile(profile::Profile),
    Fit(fit::Fit),
    ImportProfile(import_profile::ImportProfile),
    CompareTrace(compare_trace::CompareTrace),
    Plan(plan::Plan),
    Simulate(simulate::Simulate),
    Lower(lower::Lower),
    Train(train::Train),
    Epochs(epochs::Epochs),
    Launch(launch::Launch),
    Slurm(slurm::Slurm),
    Export(export::Export),
    Eval(eval::Eval),
    Completions(completions::Completions),
    Man(man::Man),
}

/// Exits with 0, with 2 for bad usage or input, or with 1 for a failure. Errors are one line on
/// stderr.
fn main() -> ExitCode {
    let cli = match command_line::parse::<Cli>() {
        Ok(cli) => cli,
        Err(error) if error.kind() == ErrorKind::DisplayHelp || error.kind() == ErrorKind::DisplayVersion => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            launched::print_usage_error("give a subcommand, such as `plan`: `--help` lists all");
            return ExitCode::from(2);
        }
        Err(error) => {
            let line = one_line(&error.to_string());
            launched::print_usage_error(line.strip_prefix("error: ").unwrap_or(&line));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        Command::Models(command) => command.run(),
        Command::Profile(command) => command.run(),
        Command::Fit(command) => command.run(),
        Command::ImportProfile(command) => command.run(),
        Command::CompareTrace(command) => command.run(),
        Command::Plan(command) => command.run(),
        Command::Simulate(command) => command.run(),
        Command::Lower(command) => command.run(),
        Command::Train(command) => command.run(),
        Command::Epochs(command) => command.run(),
        Command::Slurm(command) => command.run(),
        Command::Export(command) => command.run(),
        Command::Eval(command) => command.run(),
        Command::Launch(command) => return command.run().unwrap_or_else(|error| failed(&error)),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    launched::print_error(error, &one_line(&format!("{error:#}")));
    let is_failure = deeppool::is_failure(error.as_ref()) || is_write_failure(error.as_ref());
    ExitCode::from(if is_failure { 1 } else { 2 })
}

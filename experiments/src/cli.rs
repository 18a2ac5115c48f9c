//! Command line of the program.

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::error::ErrorKind as UsageError;
use clap::{Parser, Subcommand};
use command_line::files::is_write_failure;
use command_line::one_line;
use serde_json::json;

use crate::all::AllOptions;
use crate::catalog::Single;
use crate::journal::Journal;
use crate::options::make_folder;
use crate::{all, catalog, grid, outcome};

/// Comparisons of the DeepPool paper: tables, CSV and SVG
#[derive(Parser)]
#[command(
    version,
    max_term_width = 110,
    after_help = "\
Experiments are named for what they compare: the numbers of the figures in the DeepPool paper (Park
et al., MLSys 2022) are not known to us, and `fig7` is our alias for `throughput`. A command that
was stopped resumes when it is given again.
Examples:
  experiments fig7
  experiments throughput --gpus 4 --amplification 1.5
  experiments throughput --sweep limits.toml --out results
  experiments all --out results"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the experiments
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    #[command(flatten)]
    Single(Single),
    /// Run all experiments that are simulated on up to 64 GPUs, and write a page of their results;
    /// `--full` adds the others
    All(AllOptions),
}

/// Runs the command of the process's arguments. Returns exit code 0, 2 for bad usage or input, or 1
/// for another failure. A failure prints one line on stderr.
pub(crate) fn run() -> ExitCode {
    let line: Vec<String> =
        std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned()).collect();
    if let Err(error) = catalog::check_features(&line) {
        eprintln!("error: {error}");
        return ExitCode::from(2);
    }
    let cli = match command_line::parse::<Cli>() {
        Ok(cli) => cli,
        Err(error) if matches!(error.kind(), UsageError::DisplayHelp | UsageError::DisplayVersion) => {
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) if error.kind() == UsageError::DisplayHelpOnMissingArgumentOrSubcommand => {
            eprintln!(
                "error: no experiment is named: give one, such as `throughput`, or `all`; see `list` and \
                 `--help`"
            );
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let result = match cli.command {
        Command::List { json } => Ok(list(json)),
        Command::Single(single) => run_single(&single, &line),
        Command::All(options) => all::run(&options, &line),
    };
    match result {
        Ok(output) => print(&output),
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}")));
            let failed = deeppool::is_failure(error.as_ref()) || is_write_failure(error.as_ref());
            ExitCode::from(if failed { 1 } else { 2 })
        }
    }
}

/// Runs one experiment, or a sweep of it, writes the files and returns the text to print.
fn run_single(single: &Single, line: &[String]) -> anyhow::Result<String> {
    let (name, options) = (single.name(), single.experiment().run_options());
    if let Some(file) = &options.sweep {
        return grid::run(name, file, &options.output, line);
    }
    let (prepared, output) = (single.experiment().prepare()?, &options.output);
    make_folder(&output.out)?;
    Journal::with_journal(&output.out, name, line, |journal| {
        let found = prepared(journal)?;
        let text = outcome::save(&*found, name, &output.out, output.style)?;
        if output.json { found.to_json() } else { Ok(text) }
    })
}

fn list(json: bool) -> String {
    let experiments = Single::all().into_iter();
    if json {
        let experiments: Vec<_> = experiments
            .map(|(name, aliases, about)| json!({"name": name, "aliases": aliases, "about": about}))
            .collect();
        return format!("{:#}\n", json!({"experiments": experiments}));
    }
    let lines = experiments.map(|(name, aliases, about)| {
        let names = [vec![name], aliases].concat().join(", ");
        format!("{names:18}  {about}\n")
    });
    lines.collect::<String>()
        + &catalog::missing_experiments()
        + "\nAll but search-time and validate are simulated. The numbers of the figures in the DeepPool \
           paper (Park et al., MLSys 2022)\n\
           are not known to us: experiments are named for what they compare, and fig7 is our alias for \
           throughput.\n"
}

/// Prints to stdout. A closed pipe (`| head`) is no failure.
fn print(output: &str) -> ExitCode {
    match std::io::stdout().write_all(output.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("error: cannot write to stdout: {error}");
            ExitCode::FAILURE
        }
        _ => ExitCode::SUCCESS,
    }
}

//! Exit codes and error messages of both commands.

use std::fmt;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use command_line::files::Printer;
use command_line::one_line;

/// Parses the arguments of this process and runs a command with them. Returns exit code 0, 2 for
/// invalid usage or input, or 1 for another failure. A failure prints one line on standard error.
pub(crate) fn run<C: Parser>(command: impl FnOnce(C) -> anyhow::Result<()>) -> ExitCode {
    let arguments = match command_line::parse::<C>() {
        Ok(arguments) => arguments,
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            // The reader may have closed the pipe.
            let _ = error.print();
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    match command(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", one_line(&format!("{error:#}")));
            ExitCode::from(if error.is::<BadInput>() { 2 } else { 1 })
        }
    }
}

/// Error of invalid input. No work has been done.
#[derive(Debug)]
struct BadInput(String);

impl fmt::Display for BadInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadInput {}

/// Returns an error that ends the command with exit code 2.
pub(crate) fn bad_input(reason: impl Into<String>) -> anyhow::Error {
    BadInput(reason.into()).into()
}

/// Checks that the result files can be written, and returns the printer of the results. With
/// `json`, results are printed as JSON.
///
/// # Errors
/// Bad input, if a file cannot be written.
pub(crate) fn check_results<'a>(
    files: impl IntoIterator<Item = &'a PathBuf>,
    json: bool,
) -> anyhow::Result<Printer> {
    command_line::files::check_all(files, json).map_err(|error| bad_input(error.to_string()))
}

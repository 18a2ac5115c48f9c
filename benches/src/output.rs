//! Where results go.

use std::fs;
use std::io::{ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::builder::{PathBufValueParser, TypedValueParser};

use crate::command::bad_input;

/// A path to write to, `-` being standard output.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    let path = |path: PathBuf| if path == Path::new("-") { whole_file::STDOUT.into() } else { path };
    PathBufValueParser::new().map(path)
}

/// Prints a text and a line break: on standard error where one of the `files` goes to standard output. A reader that
/// closes the pipe before the end, such as `head`, is no error.
pub(crate) fn print<'a>(text: &str, files: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    if files.into_iter().any(whole_file::is_stdout) {
        eprintln!("{text}");
        return Ok(());
    }
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Checks where results are to go, before any work; `json` is whether standard output gets a JSON object. A file that is
/// there keeps its content, and none is left where there was none.
///
/// # Errors
/// Bad input where something cannot be written, or two results would be mixed.
pub(crate) fn check<'a>(files: impl IntoIterator<Item = &'a PathBuf>, json: bool) -> Result<()> {
    for file in files {
        whole_file::check(file).map_err(|error| bad_input(error.to_string()))?;
        if json && whole_file::is_stdout(file) {
            let file = file.display();
            return Err(bad_input(format!(
                "{file}: --json prints to standard output: leave one of the two out"
            )));
        }
    }
    Ok(())
}

/// Writes a result.
pub(crate) fn save(path: &Path, text: &str) -> Result<()> {
    Ok(whole_file::write(path, text)?)
}

/// Whether two paths lead to one file, which need not be there yet.
pub(crate) fn is_same(one: &Path, other: &Path) -> bool {
    let resolved = |path: &Path| -> Option<PathBuf> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let there = || Some(fs::canonicalize(folder.unwrap_or(Path::new("."))).ok()?.join(path.file_name()?));
        fs::canonicalize(path).ok().or_else(there)
    };
    one == other || resolved(one).is_some_and(|one| resolved(other) == Some(one))
}

//! Where results go.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write, stdout};
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::command::bad_input;

/// Prints a text and a line break. A reader that closes the pipe before the end, such as `head`, is no error.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

/// Whether a file can be written. One that is there keeps its content, and none is left where there was none.
///
/// # Errors
/// Says why not.
pub(crate) fn check_file(path: &Path) -> anyhow::Result<()> {
    let opened = match fs::metadata(path) {
        // Opening a pipe would wait for its reader.
        Ok(about) if !about.is_file() && !about.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(_) => {
            OpenOptions::new().append(true).create_new(true).open(path).and_then(|_| fs::remove_file(path))
        }
    };
    opened.map_err(|error| bad_input(format!("{}: it cannot be written: {error}", path.display())))
}

/// Writes a text into a file, as it is.
pub(crate) fn save(path: &Path, text: &str) -> anyhow::Result<()> {
    fs::write(path, text).with_context(|| path.display().to_string())
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

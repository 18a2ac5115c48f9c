//! Where results go.

use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Write, stdout};
use std::path::Path;

use anyhow::Context;

use crate::bad_input;

/// To a reader that may go away before the end, such as `head`: it has read enough.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
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
        // A pipe would be waited for.
        Ok(about) if !about.is_file() && !about.is_dir() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(path).map(drop),
        Err(_) => {
            OpenOptions::new().append(true).create_new(true).open(path).and_then(|_| fs::remove_file(path))
        }
    };
    opened.map_err(|error| bad_input(format!("{}: it cannot be written: {error}", path.display())))
}

/// Writes a file whole.
pub(crate) fn save(path: &Path, content: &str) -> anyhow::Result<()> {
    check_file(path)?;
    fs::write(path, format!("{content}\n")).with_context(|| path.display().to_string())
}

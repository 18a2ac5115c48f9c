//! Standard output.

use std::io::{ErrorKind, Write, stdout};

use anyhow::Context;

/// To a reader that may go away before the end, such as `head`: it has read enough.
pub(crate) fn write(text: &str) -> anyhow::Result<()> {
    match writeln!(stdout(), "{text}") {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("standard output"),
    }
}

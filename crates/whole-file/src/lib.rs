#![doc = include_str!("../README.md")]

mod error;
mod read;
mod results;
mod target;

use std::io::{ErrorKind, Write};
use std::path::Path;

pub use error::OutputError;
pub use read::{read, read_to_string};
#[cfg(feature = "clap")]
pub use results::argument;
pub use results::{Printer, check_all};
use target::Target;

/// Standard output, as a path.
pub const STDOUT: &str = "/dev/stdout";

/// Writes what is all of the content: in one step where that makes a file, so that readers see the old content or the new one.
///
/// A reader of a pipe or of standard output that goes away before the end is no error: it has read what it wanted.
///
/// # Errors
/// Those of [`check`], and [`OutputError::Write`] when the disk is full, among others: then a file that was there is as it was.
pub fn write(path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<(), OutputError> {
    let (path, content) = (path.as_ref(), content.as_ref());
    let failed = |error| OutputError::Write { path: path.into(), error };
    match Target::of(path)? {
        Target::Stdout => reader_may_leave(write_all(&mut std::io::stdout().lock(), content)).map_err(failed),
        Target::Special => {
            let file = std::fs::OpenOptions::new().append(true).open(path);
            reader_may_leave(file.and_then(|mut file| write_all(&mut file, content))).map_err(failed)
        }
        Target::File(target) => target.replace(content).map_err(failed),
    }
}

/// Checks that something can be written there, before the work whose result it is. Nothing is changed, and a pipe's reader is not
/// waited for.
///
/// # Errors
/// [`OutputError::NoFolder`] when the folder is not there, [`OutputError::IsFolder`] when the path is one, and [`OutputError::Write`]
/// when no file can be made in the folder.
pub fn check(path: impl AsRef<Path>) -> Result<(), OutputError> {
    let path = path.as_ref();
    match Target::of(path)? {
        Target::Stdout | Target::Special => Ok(()),
        Target::File(target) => {
            target.probe().map_err(|error| OutputError::Write { path: path.into(), error })
        }
    }
}

/// Whether what is written there is a file: one that can be read later, and beside which others can be.
///
/// # Errors
/// Those of [`check`], but for what only making a file shows.
pub fn is_file(path: impl AsRef<Path>) -> Result<bool, OutputError> {
    Ok(matches!(Target::of(path.as_ref())?, Target::File(_)))
}

/// Whether what is written there goes to standard output, where nothing else should go then.
#[must_use]
pub fn is_stdout(path: impl AsRef<Path>) -> bool {
    matches!(Target::of(path.as_ref()), Ok(Target::Stdout))
}

fn write_all(file: &mut impl Write, content: &[u8]) -> std::io::Result<()> {
    file.write_all(content).and_then(|()| file.flush())
}

fn reader_may_leave(written: std::io::Result<()>) -> std::io::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

//! Errors of results.

use std::error::Error;
use std::io;
use std::path::PathBuf;

/// Reason why a result cannot be written. The message begins with the path.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The folder of the path does not exist.
    #[error("{}: the folder `{}` does not exist: make it first", path.display(), folder.display())]
    NoFolder {
        /// Path of the result.
        path: PathBuf,
        /// Folder of the path, with symbolic links followed.
        folder: PathBuf,
    },
    /// The path is a folder.
    #[error("{}: this is a folder: give a file in it", path.display())]
    IsFolder {
        /// Path of the result.
        path: PathBuf,
    },
    /// Two results of a command go to the same file, or both to standard output.
    #[error("{}: two results go here: give each its own file", path.display())]
    Twice {
        /// Path of the second result.
        path: PathBuf,
    },
    /// A result goes to standard output, where the command prints a JSON object.
    #[error("{}: --json prints to standard output: leave one of the two out", path.display())]
    BesideJson {
        /// Path of the result.
        path: PathBuf,
    },
    /// Another process appends to the file.
    #[error(
        "{}: another run is writing this file: wait until it ends, or give another output",
        path.display()
    )]
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// Writing failed, or no file can be created in the folder.
    #[error("{}: {error}", path.display())]
    Write {
        /// Path of the result.
        path: PathBuf,
        /// Error of the operating system.
        error: io::Error,
    },
}

/// Returns whether an error or one of its sources is [`OutputError::Write`]: a failure of the
/// operating system, where all other variants are paths that cannot be used.
#[must_use]
pub fn is_write_failure(error: &(dyn Error + 'static)) -> bool {
    let is_write =
        |error: &(dyn Error + 'static)| matches!(error.downcast_ref(), Some(OutputError::Write { .. }));
    is_write(error) || error.source().is_some_and(is_write_failure)
}

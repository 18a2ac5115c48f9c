use std::io;
use std::path::PathBuf;

/// Why something could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The folder does not exist.
    #[error("{}: the folder `{}` does not exist: make it first", path.display(), folder.display())]
    NoFolder {
        /// What was to be written.
        path: PathBuf,
        /// Its folder.
        folder: PathBuf,
    },
    /// A folder is where the file was to be.
    #[error("{}: this is a folder: give a file in it", path.display())]
    IsFolder {
        /// What was to be written.
        path: PathBuf,
    },
    /// Two results of a command are one file, or both go to standard output.
    #[error("{}: two results go here: give each its own file", path.display())]
    Twice {
        /// What was to be written, as it was given the second time.
        path: PathBuf,
    },
    /// A result goes to standard output, where the command prints a JSON object.
    #[error("{}: --json prints to standard output: leave one of the two out", path.display())]
    BesideJson {
        /// What was to be written.
        path: PathBuf,
    },
    /// It could not be written.
    #[error("{}: {error}", path.display())]
    Write {
        /// What was to be written.
        path: PathBuf,
        /// Why it could not be.
        error: io::Error,
    },
}

impl OutputError {
    /// Whether another path would help, and no other state of the machine.
    #[must_use]
    pub fn is_input(&self) -> bool {
        !matches!(self, Self::Write { .. })
    }
}

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

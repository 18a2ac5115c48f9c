//! Files that one process at a time appends to.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::error::OutputError;
use super::target::Target;

/// Maximum number of attempts to open a file that other processes remove.
const ATTEMPTS: usize = 100;

/// A file that is open for appending, and locked against other processes that open it in the same
/// way. The lock ends with the value or the process.
///
/// Devices, pipes and files on a file system without locks are not locked.
#[derive(Debug)]
pub struct LockedFile {
    path: PathBuf,
    file: File,
    is_new: bool,
}

impl LockedFile {
    /// Opens the file at `path`, creates it if it does not exist, and locks it. A regular file can
    /// also be read.
    ///
    /// # Errors
    /// [`OutputError::InUse`] if another process has locked the file. [`OutputError::NoFolder`] and
    /// [`OutputError::IsFolder`] as [`check`](super::check), and [`OutputError::Write`] if the file
    /// cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OutputError> {
        let path = path.as_ref();
        let failed = |error| OutputError::Write { path: path.into(), error };
        let is_regular = matches!(Target::of(path)?, Target::File(_));
        for _ in 0..ATTEMPTS {
            let (file, is_new) = open(path, is_regular).map_err(failed)?;
            if !is_regular {
                return Ok(Self { path: path.into(), file, is_new: false });
            }
            if !try_lock(&file) {
                return Err(OutputError::InUse { path: path.into() });
            }
            // The process that held the lock before may have removed the file meanwhile.
            if is_same(&file, path) {
                return Ok(Self { path: path.into(), file, is_new });
            }
        }
        Err(OutputError::InUse { path: path.into() })
    }

    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the open file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns the open file for changes.
    pub fn file_mut(&mut self) -> &mut File {
        &mut self.file
    }

    /// Returns whether [`open`](Self::open) created the file.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Deletes the file, while it stays locked. No error if it does not exist any more.
    ///
    /// # Errors
    /// [`OutputError::Write`] if the file cannot be deleted.
    pub fn remove(&self) -> Result<(), OutputError> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(OutputError::Write { path: self.path.clone(), error })
            }
            _ => Ok(()),
        }
    }
}

/// Opens a file for appending, and for reading if it is regular. Returns whether it was created.
fn open(path: &Path, is_regular: bool) -> io::Result<(File, bool)> {
    let mut options = OpenOptions::new();
    options.append(true).read(is_regular);
    match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            match options.clone().create_new(true).open(path) {
                Ok(file) => Ok((file, true)),
                // Another process created it, or it is a link to a file that does not exist.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                    Ok((options.create(true).open(path)?, false))
                }
                Err(error) => Err(error),
            }
        }
        file => Ok((file?, false)),
    }
}

/// Locks a file, and returns `false` if another process has locked it. A file system without locks
/// is no error.
#[cfg(unix)]
fn try_lock(file: &File) -> bool {
    use rustix::fs::{FlockOperation, flock};
    use rustix::io::Errno;

    flock(file, FlockOperation::NonBlockingLockExclusive) != Err(Errno::WOULDBLOCK)
}

#[cfg(not(unix))]
fn try_lock(_: &File) -> bool {
    true
}

/// Returns whether a path refers to an open file.
#[cfg(unix)]
fn is_same(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;

    let key = |metadata: io::Result<fs::Metadata>| metadata.ok().map(|file| (file.dev(), file.ino()));
    key(file.metadata()) == key(fs::metadata(path))
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
}

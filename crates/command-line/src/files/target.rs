//! Kinds of things that the path of a result refers to.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use super::error::OutputError;

/// Maximum number of symbolic links that are followed, as in Linux.
const MAX_LINKS: usize = 40;

/// Kind of thing that the path of a result refers to.
pub(super) enum Target {
    /// Standard output of this process.
    Stdout,
    /// A device, a pipe or an open descriptor, which is opened and written to.
    Special,
    /// A regular file, which may not exist yet and is replaced as a whole.
    File(FileTarget),
}

impl Target {
    /// Follows the symbolic links of `path` and returns the kind of thing that it refers to.
    ///
    /// # Errors
    /// [`OutputError::IsFolder`] if it is a folder. [`OutputError::NoFolder`] if its folder does
    /// not exist.
    pub(super) fn of(path: &Path) -> Result<Self, OutputError> {
        let mut at = path.to_owned();
        for _ in 0..MAX_LINKS {
            if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|stdout| at == Path::new(stdout)) {
                return Ok(Self::Stdout);
            }
            // A descriptor is a link to its open file. The file is not replaced: other processes
            // write to it as well.
            if is_open_descriptor(&at) {
                return Ok(Self::Special);
            }
            match fs::read_link(&at) {
                Ok(link) => at = folder(&at).join(link),
                Err(_) => break,
            }
        }
        let is_folder = fs::metadata(&at).is_ok_and(|metadata| metadata.is_dir());
        if is_folder || path.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(OutputError::IsFolder { path: path.into() });
        }
        match fs::metadata(&at) {
            Ok(metadata) if !metadata.is_file() => Ok(Self::Special),
            metadata => {
                let folder = folder(&at).to_owned();
                if !folder.is_dir() {
                    return Err(OutputError::NoFolder { path: path.into(), folder });
                }
                let permissions = metadata.ok().map(|metadata| metadata.permissions());
                Ok(Self::File(FileTarget { path: at, folder, permissions }))
            }
        }
    }
}

/// Returns the folder of a path.
pub(super) fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns whether a path is `/dev/fd/N`, `/dev/stderr` or `/proc/PROCESS/fd/N`.
fn is_open_descriptor(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else {
        return path == Path::new("/dev/stderr") || path.starts_with("/dev/fd");
    };
    below.components().any(|part| part.as_os_str() == "fd")
}

/// A regular file, which may not exist yet: its path without links, its folder, and the permissions
/// of an existing file.
pub(super) struct FileTarget {
    path: PathBuf,
    folder: PathBuf,
    permissions: Option<Permissions>,
}

impl FileTarget {
    /// Replaces the content of the file in one step: writes a temporary file in the same folder,
    /// with the permissions of the existing file, and renames it.
    ///
    /// # Errors
    /// That of the operating system. The file then keeps its content.
    pub(super) fn replace(self, content: &[u8]) -> io::Result<()> {
        let mut file = self.beside()?;
        file.write_all(content)?;
        if let Some(permissions) = self.permissions {
            file.as_file().set_permissions(permissions)?;
        }
        file.persist(self.path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Checks that a file can be created in the folder: creates and removes a temporary file.
    ///
    /// # Errors
    /// That of the operating system.
    pub(super) fn probe(self) -> io::Result<()> {
        self.beside().map(drop)
    }

    /// Returns the absolute path of the file without symbolic links, by which two results with the
    /// same file are found.
    pub(super) fn resolved(&self) -> PathBuf {
        let in_folder = || Some(fs::canonicalize(&self.folder).ok()?.join(self.path.file_name()?));
        in_folder().unwrap_or_else(|| self.path.clone())
    }

    fn beside(&self) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        // Temporary files are private by default. Results are not.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        // The complete error names the temporary file.
        builder.tempfile_in(&self.folder).map_err(|error| io::Error::from(error.kind()))
    }
}

//! What a path stands for.

use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use tempfile::{Builder, NamedTempFile};

use crate::OutputError;

/// Links that are followed before they are taken for a circle, as Linux does.
const MOST_LINKS: usize = 40;

/// Where bytes go.
pub(crate) enum Target {
    Stdout,
    /// A device, a pipe, or a descriptor that is open already: opened and written to.
    Special,
    File(FileTarget),
}

impl Target {
    pub(crate) fn of(path: &Path) -> Result<Self, OutputError> {
        let mut at = path.to_owned();
        for _ in 0..MOST_LINKS {
            if ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"].iter().any(|stdout| at == Path::new(stdout)) {
                return Ok(Self::Stdout);
            }
            // Descriptors are links to what they are open for, which may be a file. It is not replaced: others write to it, too.
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

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// `/dev/fd/N`, `/dev/stderr`, or `/proc/PROCESS/fd/N`.
fn is_open_descriptor(path: &Path) -> bool {
    let Ok(below) = path.strip_prefix("/proc") else {
        return path == Path::new("/dev/stderr") || path.starts_with("/dev/fd");
    };
    below.components().any(|part| part.as_os_str() == "fd")
}

/// A file, by its own name, and what it may be used for where it is there already.
pub(crate) struct FileTarget {
    path: PathBuf,
    folder: PathBuf,
    permissions: Option<Permissions>,
}

impl FileTarget {
    /// Writes beside the file, and then puts that in its place.
    pub(crate) fn replace(self, content: &[u8]) -> io::Result<()> {
        let mut file = self.beside()?;
        file.write_all(content)?;
        if let Some(permissions) = self.permissions {
            file.as_file().set_permissions(permissions)?;
        }
        file.persist(self.path).map_err(|error| error.error)?;
        Ok(())
    }

    /// Fails where [`replace`](Self::replace) would before it writes.
    pub(crate) fn probe(self) -> io::Result<()> {
        self.beside().map(drop)
    }

    /// One path for all that lead to this file, which need not be there yet.
    pub(crate) fn resolved(&self) -> PathBuf {
        let in_folder = || Some(fs::canonicalize(&self.folder).ok()?.join(self.path.file_name()?));
        in_folder().unwrap_or_else(|| self.path.clone())
    }

    fn beside(&self) -> io::Result<NamedTempFile> {
        let mut builder = Builder::new();
        // Private files, which is what temporary ones are by default, would surprise whoever shares a result.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        // Its error names a file that nobody has asked for.
        builder.tempfile_in(&self.folder).map_err(|error| io::Error::from(error.kind()))
    }
}

//! Files that are either written whole or not at all.

use std::io::Write;
use std::path::Path;

use crate::Error;

/// Writes a file in one step: readers see the old content or the new one, never a part.
///
/// # Errors
/// [`Error::File`] when the folder does not exist or cannot be written to.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<(), Error> {
    let failed = |error: std::io::Error| Error::File { path: path.into(), problem: error.to_string() };
    let folder = parent(path);
    check_folder(path)?;
    let mut builder = tempfile::Builder::new();
    // Private files, which is what temporary ones are by default, would surprise whoever shares a plan.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(failed)?;
    file.write_all(content).map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

/// Checks that the folder of a file exists, before the work whose result is to go there.
///
/// # Errors
/// [`Error::File`] when it does not.
pub fn check_folder(path: &Path) -> Result<(), Error> {
    let folder = parent(path);
    if folder.is_dir() {
        return Ok(());
    }
    let problem = format!("the folder `{}` does not exist: make it first", folder.display());
    Err(Error::File { path: path.into(), problem })
}

fn parent(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

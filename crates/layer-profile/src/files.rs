//! Files that hold one JSON document.

use std::io::Write;
use std::path::Path;

use crate::ProfileError;

/// Writes a document to a file, whole or not at all: a file that is there stays as it is until the new one is complete.
pub(crate) fn save(path: &Path, document: &str) -> Result<(), ProfileError> {
    let in_file = |problem: String| ProfileError::File { path: path.into(), problem };
    let folder = match path.parent() {
        Some(folder) if folder.as_os_str().is_empty() => Path::new("."),
        Some(folder) => folder,
        None => return Err(in_file("not a file name".into())),
    };
    if !folder.is_dir() {
        return Err(in_file(format!("the folder `{}` does not exist", folder.display())));
    }
    let mut builder = tempfile::Builder::new();
    // Private files, which is what temporary ones are by default, would surprise whoever shares a profile.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(|error| in_file(error.to_string()))?;
    file.write_all(document.as_bytes()).map_err(|error| in_file(error.to_string()))?;
    file.persist(path).map_err(|error| in_file(error.error.to_string()))?;
    Ok(())
}

/// Reads the document of a file.
pub(crate) fn load<T>(
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, ProfileError>,
) -> Result<T, ProfileError> {
    let in_file = |problem: String| ProfileError::File { path: path.into(), problem };
    let text = std::fs::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    read(&text).map_err(|error| in_file(error.to_string()))
}

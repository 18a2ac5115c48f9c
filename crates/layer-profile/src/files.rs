//! Files that hold one JSON document.

use std::path::Path;

use crate::ProfileError;

/// Reads the document of a file.
pub(crate) fn load<T>(
    path: &Path,
    read: impl FnOnce(&str) -> Result<T, ProfileError>,
) -> Result<T, ProfileError> {
    let in_file = |problem: String| ProfileError::File { path: path.into(), problem };
    let text = whole_file::read_to_string(path).map_err(|error| in_file(error.to_string()))?;
    read(&text).map_err(|error| in_file(error.to_string()))
}

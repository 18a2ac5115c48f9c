//! Shared memory of the ranks that `deeppool launch` starts.

use std::path::PathBuf;

/// Folder of the shared-memory segments by which the ranks of a run exchange data. It is removed
/// when this value is dropped, because ranks that are killed do not remove their segments.
pub(super) struct SegmentFolder(Option<PathBuf>);

impl SegmentFolder {
    /// Name of the environment variable from which Open MPI reads the path of the folder.
    pub(super) const VARIABLE: &str = "OMPI_MCA_btl_vader_backing_directory";

    /// Creates the folder in `/dev/shm`, unless the environment variable is set or that fails.
    pub(super) fn new() -> Self {
        let folder = PathBuf::from(format!("/dev/shm/deeppool.{}", std::process::id()));
        let is_made = std::env::var_os(Self::VARIABLE).is_none() && std::fs::create_dir(&folder).is_ok();
        Self(is_made.then_some(folder))
    }

    /// Returns the environment variable and its value for mpirun; `None` if no folder was created.
    pub(super) fn variable(&self) -> Option<(&'static str, &PathBuf)> {
        self.0.as_ref().map(|folder| (Self::VARIABLE, folder))
    }
}

impl Drop for SegmentFolder {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // A failure does not change the result of the run.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

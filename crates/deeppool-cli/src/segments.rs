use std::path::PathBuf;

/// Folder of the shared-memory segments of all ranks of a run. Ranks that are killed do not remove
/// their segments.
pub(super) struct Segments(Option<PathBuf>);

impl Segments {
    /// Setting of Open MPI for the folder.
    pub(super) const SETTING: &str = "OMPI_MCA_btl_vader_backing_directory";

    /// Creates the folder, unless the setting is given or there is no shared memory.
    pub(super) fn new() -> Self {
        let folder = PathBuf::from(format!("/dev/shm/deeppool.{}", std::process::id()));
        let is_made = std::env::var_os(Self::SETTING).is_none() && std::fs::create_dir(&folder).is_ok();
        Self(is_made.then_some(folder))
    }

    /// Returns the name and the value of the setting; `None` if no folder was created.
    pub(super) fn setting(&self) -> Option<(&'static str, &PathBuf)> {
        self.0.as_ref().map(|folder| (Self::SETTING, folder))
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // A failure does not change the result of the run.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

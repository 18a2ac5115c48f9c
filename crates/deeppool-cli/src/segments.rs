use std::path::PathBuf;

/// A folder for the shared-memory segments of the ranks of one run, which those that are killed leave behind.
pub(super) struct Segments(Option<PathBuf>);

impl Segments {
    /// Open MPI's setting for where they are.
    pub(super) const SETTING: &str = "OMPI_MCA_btl_vader_backing_directory";

    /// Where somebody has said where, or there is no shared memory, nothing is made.
    pub(super) fn new() -> Self {
        let folder = PathBuf::from(format!("/dev/shm/deeppool.{}", std::process::id()));
        let is_made = std::env::var_os(Self::SETTING).is_none() && std::fs::create_dir(&folder).is_ok();
        Self(is_made.then_some(folder))
    }

    pub(super) fn setting(&self) -> Option<(&'static str, &PathBuf)> {
        self.0.as_ref().map(|folder| (Self::SETTING, folder))
    }
}

impl Drop for Segments {
    fn drop(&mut self) {
        if let Some(folder) = &self.0 {
            // What cannot be removed does not change how the ranks ended.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

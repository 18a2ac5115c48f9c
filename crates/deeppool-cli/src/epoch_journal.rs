//! Journal of an unfinished curve of epochs by batch: one JSON line that describes the measurement,
//! and one for each finished run.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use command_line::files::LockedFile;
use deeppool::accuracy::TargetRun;

/// Journal of finished runs, from which a measurement resumes after its process has ended.
///
/// Each run is appended by one write. An incomplete last line is discarded. The file is locked, and
/// deleted at the end if it has no run.
pub(crate) struct EpochJournal {
    file: LockedFile,
    subject: String,
    runs: Vec<TargetRun>,
    /// Length of the complete lines, in bytes.
    whole: u64,
    /// Whether an incomplete line follows them.
    is_cut: bool,
}

impl EpochJournal {
    /// Reads the journal of the curve that is written to the file `curve`, or creates an empty one.
    /// The name of the journal is that name with `.partial` appended. `subject` describes the
    /// measurement.
    ///
    /// # Errors
    /// If another process has the journal open, or if the file cannot be read, is damaged, or is of
    /// a measurement with another `subject`.
    pub(crate) fn open(curve: &Path, subject: &str) -> anyhow::Result<Self> {
        let mut path = curve.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        let name = path.display();
        let mut file = LockedFile::open(&path)?;
        let mut bytes = Vec::new();
        file.file_mut().read_to_end(&mut bytes).with_context(|| name.to_string())?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        let mut lines = (1..).zip(bytes[..whole].split_inclusive(|&byte| byte == b'\n'));
        let damaged =
            |line: usize, error| anyhow!("{name}: damaged at line {line}: {error}: delete it to begin again");
        if let Some((number, line)) = lines.next() {
            let theirs: String = serde_json::from_slice(line).map_err(|error| damaged(number, error))?;
            if theirs != subject {
                bail!(
                    "{name}: the unfinished curve of `{theirs}`: finish it as it was begun, or delete it to \
                     begin again"
                );
            }
        }
        let read = |(number, line)| serde_json::from_slice(line).map_err(|error| damaged(number, error));
        let runs = lines.map(read).collect::<anyhow::Result<_>>()?;
        Ok(Self { file, subject: subject.into(), runs, whole: whole as u64, is_cut: whole < bytes.len() })
    }

    /// Returns the run that was added last among those for which `is_match` is true; `None` if
    /// there is none.
    pub(crate) fn find(&self, is_match: impl Fn(&&TargetRun) -> bool) -> Option<&TargetRun> {
        self.runs.iter().rev().find(is_match)
    }

    /// Appends a finished run to the file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn add(&mut self, run: &TargetRun) -> anyhow::Result<()> {
        let run = serde_json::to_string(run)?;
        let lines = if self.whole == 0 {
            format!("{}\n{run}\n", serde_json::to_string(&self.subject)?)
        } else {
            format!("{run}\n")
        };
        let appended = self.append(&lines);
        appended.with_context(|| self.path().display().to_string())
    }

    fn append(&mut self, lines: &str) -> std::io::Result<()> {
        let file = self.file.file_mut();
        if self.is_cut {
            file.set_len(self.whole)?;
            self.is_cut = false;
        }
        file.write_all(lines.as_bytes())?;
        self.whole += lines.len() as u64;
        Ok(())
    }

    /// Returns the path of the journal.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Deletes the journal's file.
    ///
    /// # Errors
    /// If the file cannot be deleted.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        Ok(self.file.remove()?)
    }
}

impl Drop for EpochJournal {
    fn drop(&mut self) {
        if self.whole == 0 {
            // A file without runs that is left does no harm.
            let _ = self.file.remove();
        }
    }
}

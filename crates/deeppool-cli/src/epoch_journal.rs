//! Journal of an unfinished curve of epochs by batch: one JSON line that describes the measurement,
//! and one for each finished run.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use deeppool::accuracy::TargetRun;

/// Journal of finished runs, from which a measurement resumes after its process has ended.
///
/// Each run is appended by one write. An incomplete last line is discarded. The file is created
/// when the first run is finished.
pub(crate) struct EpochJournal {
    path: PathBuf,
    subject: String,
    runs: Vec<TargetRun>,
    /// Length of the complete lines, in bytes.
    whole: u64,
    /// Whether an incomplete line follows them.
    is_cut: bool,
    file: Option<File>,
}

impl EpochJournal {
    /// Reads the journal of the curve that is written to the file `curve`. The name of the journal
    /// is that name with `.partial` appended. The journal is empty if there is no such file.
    /// `subject` describes the measurement.
    ///
    /// # Errors
    /// If the file cannot be read, is damaged, or is of a measurement with another `subject`.
    pub(crate) fn open(curve: &Path, subject: &str) -> anyhow::Result<Self> {
        let mut path = curve.as_os_str().to_owned();
        path.push(".partial");
        let path = PathBuf::from(path);
        let name = path.display();
        let bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            Err(error) => bail!("{name}: {error}"),
        };
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
        Ok(Self {
            path,
            subject: subject.into(),
            runs,
            whole: whole as u64,
            is_cut: whole < bytes.len(),
            file: None,
        })
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
        let lines = match (&self.file, self.whole) {
            (None, 0) => format!("{}\n{run}\n", serde_json::to_string(&self.subject)?),
            _ => format!("{run}\n"),
        };
        self.append(&lines).with_context(|| self.path.display().to_string())
    }

    fn append(&mut self, lines: &str) -> std::io::Result<()> {
        let open = || OpenOptions::new().append(true).create(true).open(&self.path);
        let mut file = self.file.take().map_or_else(open, Ok)?;
        if self.is_cut {
            file.set_len(self.whole)?;
            self.is_cut = false;
        }
        file.write_all(lines.as_bytes())?;
        self.file = Some(file);
        Ok(())
    }

    /// Returns the path of the journal.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the journal's file, if there is one.
    ///
    /// # Errors
    /// If the file cannot be deleted.
    pub(crate) fn remove(self) -> anyhow::Result<()> {
        if self.file.is_none() && self.whole == 0 {
            return Ok(());
        }
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }
}

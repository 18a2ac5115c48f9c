//! Journal of an unfinished profile: one JSON line with the conditions, and one for each finished
//! measurement.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::header::JournalHeader;
use crate::rows::{LayerDocument, NetworkDocument};
use crate::{LayerProfile, NetworkTime, ProfileError};

/// Line after the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// Layer at one batch size.
    Layer(LayerDocument),
    Network(NetworkDocument),
}

/// Journal of finished measurements, which survives the death of the process at any time.
///
/// Each measurement is appended by one write. An incomplete last line is discarded; any other
/// damage is an error.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
    layers: HashMap<(String, usize), LayerProfile>,
    network: HashMap<usize, NetworkTime>,
}

impl Journal {
    /// Opens the existing journal, or creates one.
    pub(super) fn open(path: PathBuf, header: &JournalHeader) -> Result<Self, ProfileError> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let file = options.open(&path).map_err(|error| failed(&path, &error))?;
        let bytes = std::fs::read(&path).map_err(|error| failed(&path, &error))?;
        let mut journal = Self { path, file, layers: HashMap::new(), network: HashMap::new() };
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            journal.file.set_len(whole as u64).map_err(|error| failed(&journal.path, &error))?;
        }
        let mut lines = bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate();
        match lines.next() {
            Some((_, first)) => {
                let theirs: JournalHeader =
                    serde_json::from_slice(first).map_err(|e| journal.damaged(0, &e))?;
                header.check(&theirs).map_err(|problem| journal.error(problem))?;
            }
            None => journal.append(header)?,
        }
        for (number, line) in lines {
            let line: Record =
                serde_json::from_slice(line).map_err(|error| journal.damaged(number, &error))?;
            journal.read(line, header).map_err(|problem| journal.damaged(number, &problem))?;
        }
        Ok(journal)
    }

    fn read(&mut self, line: Record, header: &JournalHeader) -> Result<(), String> {
        let (subject, batch, is_duplicate) = match line {
            Record::Layer(document) => {
                let row = document.into_row("layer").map_err(|error| error.to_string())?;
                let [time] = row.times[..] else { return Err("expected one batch size".into()) };
                header.has_layer(&row)?;
                let subject = format!("layer `{}`", row.name);
                let is_duplicate = self.layers.insert((row.name.clone(), time.batch), row).is_some();
                (subject, time.batch, is_duplicate)
            }
            Record::Network(document) => {
                let row = document.into_row("network").map_err(|error| error.to_string())?;
                ("the network".to_owned(), row.batch, self.network.insert(row.batch, row).is_some())
            }
        };
        if is_duplicate {
            return Err(format!("{subject} was measured at batch {batch} already"));
        }
        if !header.has_batch(batch) {
            return Err(format!("{subject} was not to be measured at batch {batch}"));
        }
        Ok(())
    }

    /// Returns the number of finished measurements.
    pub(super) fn len(&self) -> usize {
        self.layers.len() + self.network.len()
    }

    /// Returns the row of a layer at one batch size, if it is finished.
    pub(super) fn layer(&self, name: &str, batch: usize) -> Option<&LayerProfile> {
        // The lookup needs an owned key, because `(&str, usize)` cannot be borrowed from `(String,
        // usize)`.
        self.layers.get(&(name.to_owned(), batch))
    }

    pub(super) fn network(&self, batch: usize) -> Option<NetworkTime> {
        self.network.get(&batch).copied()
    }

    /// Appends the row of a layer at one batch size.
    pub(super) fn add_layer(&mut self, row: &LayerProfile) -> Result<(), ProfileError> {
        self.append(&Record::Layer(LayerDocument::new(row)))
    }

    pub(super) fn add_network(&mut self, row: &NetworkTime) -> Result<(), ProfileError> {
        self.append(&Record::Network(NetworkDocument::new(row)))
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), ProfileError> {
        let mut text = serde_json::to_vec(line).map_err(|error| self.error(error.to_string()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(|error| failed(&self.path, &error))
    }

    /// Deletes the journal after the profile was saved.
    pub(super) fn remove(self) -> Result<(), ProfileError> {
        std::fs::remove_file(&self.path).map_err(|error| failed(&self.path, &error))
    }

    fn error(&self, problem: String) -> ProfileError {
        ProfileError::Journal { path: self.path.clone(), problem }
    }

    fn damaged(&self, line: usize, problem: &impl ToString) -> ProfileError {
        self.error(format!("is damaged at line {}: {}", line + 1, problem.to_string()))
    }
}

fn failed(path: &Path, error: &std::io::Error) -> ProfileError {
    ProfileError::File { path: path.into(), problem: error.to_string() }
}

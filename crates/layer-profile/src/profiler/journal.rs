//! Journal of an unfinished profile: one JSON line with the conditions, and one for each finished
//! measurement. A measurement is that of a layer, of a part of a layer, or of the whole network, at
//! one batch size.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};

use layer_graph::Layer;
use serde::{Deserialize, Serialize};

use super::header::JournalHeader;
use crate::rows::{LayerDocument, NetworkDocument};
use crate::{BatchTime, LayerProfile, NetworkTime, ProfileError, structure};

/// Line after the first.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Record {
    /// Layer at one batch size.
    Layer(LayerDocument),
    /// Part of a split layer at one batch size.
    Part(LayerDocument),
    /// Whole network at one batch size.
    Network(NetworkDocument),
}

/// Journal of finished measurements, in a file that remains valid if the process is killed at any
/// time.
///
/// Each measurement is appended by one write. An incomplete last line is discarded; any other
/// damage is an error.
pub(super) struct Journal<'f> {
    file: &'f mut File,
    layers: HashMap<(String, usize), LayerProfile>,
    /// By layer name, structure and batch size.
    parts: HashMap<(String, String, usize), LayerProfile>,
    network: HashMap<usize, NetworkTime>,
}

impl<'f> Journal<'f> {
    /// Reads the finished measurements of a journal begun under the conditions in `header`. An
    /// empty file becomes a new journal.
    ///
    /// # Errors
    /// [`ProfileError::Journal`] if the journal is damaged or was begun under other conditions, and
    /// [`ProfileError::JournalFile`] if the file cannot be read or written.
    pub(super) fn open(file: &'f mut File, header: &JournalHeader) -> Result<Self, ProfileError> {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(ProfileError::JournalFile)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(ProfileError::JournalFile)?;
        }
        file.seek(SeekFrom::End(0)).map_err(ProfileError::JournalFile)?;
        let mut journal =
            Self { file, layers: HashMap::new(), parts: HashMap::new(), network: HashMap::new() };
        let mut lines = bytes[..whole].split_inclusive(|&byte| byte == b'\n').enumerate();
        match lines.next() {
            Some((_, first)) => {
                let theirs: JournalHeader = serde_json::from_slice(first).map_err(|e| damaged(0, &e))?;
                header.check(&theirs).map_err(journal_error)?;
            }
            None => journal.append(header)?,
        }
        for (number, line) in lines {
            let line: Record = serde_json::from_slice(line).map_err(|error| damaged(number, &error))?;
            journal.read(line, header).map_err(|problem| damaged(number, &problem))?;
        }
        Ok(journal)
    }

    fn read(&mut self, line: Record, header: &JournalHeader) -> Result<(), String> {
        let (subject, batch, is_duplicate) = match line {
            Record::Part(document) => {
                let (row, batch) = row_of_one(document, "part")?;
                header.check_part(&row)?;
                let subject = format!("a part of layer `{}`", row.name);
                let key = (row.name.clone(), row.structure.clone().unwrap_or_default(), batch);
                (subject, batch, self.parts.insert(key, row).is_some())
            }
            Record::Layer(document) => {
                let (row, batch) = row_of_one(document, "layer")?;
                header.check_row(&row)?;
                let subject = format!("layer `{}`", row.name);
                let is_duplicate = self.layers.insert((row.name.clone(), batch), row).is_some();
                (subject, batch, is_duplicate)
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

    /// Returns the number of finished measurements found in the file when it was opened.
    pub(super) fn len(&self) -> usize {
        self.layers.len() + self.parts.len() + self.network.len()
    }

    /// Returns the row of the layer with this name at one batch size, or `None` if the file did not
    /// hold it when it was opened.
    pub(super) fn layer(&self, name: &str, batch: usize) -> Option<&LayerProfile> {
        // The lookup needs an owned key, because `(&str, usize)` cannot be borrowed from `(String,
        // usize)`.
        self.layers.get(&(name.to_owned(), batch))
    }

    /// Returns the row of a part of a layer at one batch size, or `None` if the file did not hold
    /// it when it was opened.
    pub(super) fn part(&self, part: &Layer, batch: usize) -> Option<&LayerProfile> {
        self.parts.get(&(part.name().to_owned(), structure::of_layer(part), batch))
    }

    /// Returns the row of the whole network at one batch size, or `None` if the file did not hold
    /// it when it was opened.
    pub(super) fn network(&self, batch: usize) -> Option<NetworkTime> {
        self.network.get(&batch).copied()
    }

    /// Appends the row of a layer, which has one batch size, to the file.
    ///
    /// # Errors
    /// [`ProfileError::JournalFile`] if the file cannot be written.
    pub(super) fn add_layer(&mut self, row: &LayerProfile) -> Result<(), ProfileError> {
        self.append(&Record::Layer(LayerDocument::new(row)))
    }

    /// Appends the row of a part of a layer, which has one batch size, to the file.
    ///
    /// # Errors
    /// [`ProfileError::JournalFile`] if the file cannot be written.
    pub(super) fn add_part(&mut self, row: &LayerProfile) -> Result<(), ProfileError> {
        self.append(&Record::Part(LayerDocument::new(row)))
    }

    /// Appends the row of the whole network at one batch size to the file.
    ///
    /// # Errors
    /// [`ProfileError::JournalFile`] if the file cannot be written.
    pub(super) fn add_network(&mut self, row: &NetworkTime) -> Result<(), ProfileError> {
        self.append(&Record::Network(NetworkDocument::new(row)))
    }

    fn append(&mut self, line: &impl Serialize) -> Result<(), ProfileError> {
        let mut text = serde_json::to_vec(line).map_err(|error| journal_error(error.to_string()))?;
        text.push(b'\n');
        self.file.write_all(&text).map_err(ProfileError::JournalFile)
    }
}

/// Returns the row of a document of one batch size, and that size.
fn row_of_one(document: LayerDocument, path: &str) -> Result<(LayerProfile, usize), String> {
    let row = document.into_row(path).map_err(|error| error.to_string())?;
    match row.times[..] {
        [BatchTime { batch, .. }] => Ok((row, batch)),
        _ => Err("expected one batch size".into()),
    }
}

fn journal_error(problem: String) -> ProfileError {
    ProfileError::Journal { problem }
}

fn damaged(line: usize, problem: &impl ToString) -> ProfileError {
    journal_error(format!("is damaged at line {}: {}", line + 1, problem.to_string()))
}

//! Checkpoint folders: their files, and the manifest with the SHA-256 of each.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::tensors::{self, Tensors};
use crate::Error;

/// The manifest, which makes a folder of files a checkpoint.
const MANIFEST: &str = "checkpoint.json";
pub(super) const SCHEMA: &str = "deeppool/checkpoint/v1";

/// A checkpoint on disk.
pub(super) struct Checkpoint {
    /// Its folder.
    pub(super) path: PathBuf,
    /// The iteration in the name of its folder.
    pub(super) iteration: u64,
    /// Names of the files, after they were checked.
    files: Vec<String>,
}

/// The manifest of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Manifest {
    schema: String,
    iteration: u64,
    /// Fraction of the held-out samples that are classified correctly, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    /// Files by name.
    files: BTreeMap<String, ListedFile>,
}

#[derive(Serialize, Deserialize, PartialEq)]
pub(super) struct ListedFile {
    bytes: u64,
    sha256: String,
}

/// Names and values that must be equal in a checkpoint and the run that resumes from it.
pub(super) type Identity = [(String, String); 5];

/// The result of searching for a checkpoint.
#[derive(Default)]
pub(super) struct Found {
    /// The newest valid checkpoint; `None` starts from the beginning.
    pub(super) checkpoint: Option<Checkpoint>,
    /// The errors of newer, damaged checkpoints.
    pub(super) damaged: Vec<Error>,
}

impl Found {
    /// Number of completed iterations.
    pub(super) fn iteration(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.iteration)
    }
}

/// Returns the newest valid checkpoint in a folder. Checks them from the newest on.
///
/// # Errors
/// [`Error::Checkpoint`] if all of them are damaged.
pub(super) fn newest_valid(folder: &Path) -> Result<Found, Error> {
    let mut found = Found::default();
    for mut checkpoint in list(folder)?.into_iter().rev() {
        match checkpoint.check_files() {
            Ok(()) => {
                found.checkpoint = Some(checkpoint);
                return Ok(found);
            }
            Err(error) => found.damaged.push(error),
        }
    }
    if found.damaged.is_empty() { Ok(found) } else { Err(found.damaged.swap_remove(0)) }
}

/// Returns the checkpoint with the highest test accuracy, and this accuracy; of equal ones, the
/// oldest. It may be damaged.
pub(super) fn best(folder: &Path) -> Result<Option<(Checkpoint, f64)>, Error> {
    let known = list(folder)?.into_iter().filter_map(|checkpoint| {
        let accuracy = checkpoint.manifest().ok()?.test_accuracy?;
        Some((checkpoint, accuracy))
    });
    Ok(known.reduce(|best, other| if other.1 > best.1 { other } else { best }))
}

/// Returns [`best`] after checking its files.
///
/// # Errors
/// [`Error::Checkpoint`] if it is damaged.
pub(super) fn best_valid(folder: &Path) -> Result<Option<Checkpoint>, Error> {
    let Some((mut checkpoint, _)) = best(folder)? else { return Ok(None) };
    checkpoint.check_files()?;
    Ok(Some(checkpoint))
}

/// Returns the complete checkpoints in a folder, oldest first.
pub(super) fn list(folder: &Path) -> Result<Vec<Checkpoint>, Error> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, error))?;
    let mut found: Vec<Checkpoint> = entries
        .filter_map(Result::ok)
        .filter_map(|entry| {
            let iteration = entry.file_name().to_str()?.strip_prefix("iteration-")?.parse().ok()?;
            Some(Checkpoint { path: entry.path(), iteration, files: Vec::new() })
        })
        .collect();
    found.sort_by_key(|checkpoint| checkpoint.iteration);
    Ok(found)
}

/// Prefix of the names of the ranks' own files.
const RANK_FILE_PREFIX: &str = "rank-";

pub(super) fn file_name(rank: usize) -> String {
    format!("{RANK_FILE_PREFIX}{rank}.safetensors")
}

impl ListedFile {
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: format!("{:x}", Sha256::digest(bytes)) }
    }
}

pub(super) fn remove(checkpoints: impl IntoIterator<Item = Checkpoint>) -> Result<(), Error> {
    checkpoints
        .into_iter()
        .try_for_each(|one| fs::remove_dir_all(&one.path).map_err(|error| write_error(&one.path, error)))
}

/// Waits until a file, or the entries of a folder, are on disk.
pub(super) fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| write_error(path, error))
}

/// Writes the manifest of the files of all ranks as JSON.
pub(super) fn write_manifest(
    folder: &Path,
    (iteration, test_accuracy): (u64, Option<f64>),
    files: &[Vec<u8>],
) -> Result<(), Error> {
    let path = folder.join(MANIFEST);
    let files: Result<Vec<Vec<(String, ListedFile)>>, _> =
        files.iter().map(|file| serde_json::from_slice(file)).collect();
    let files: BTreeMap<String, ListedFile> =
        files.map_err(|error| write_error(&path, error))?.into_iter().flatten().collect();
    for (name, file) in &files {
        let there = fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
        if there != file.bytes {
            let problem =
                "the rank's file is not in the folder that rank 0 sees: give all ranks the same folder";
            return Err(write_error(&folder.join(name), problem));
        }
    }
    let manifest = Manifest { schema: SCHEMA.into(), iteration, test_accuracy, files };
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| write_error(&path, error))?;
    // The folder gets its final name when it is complete.
    fs::write(&path, text).map_err(|error| write_error(&path, error))?;
    sync(&path)?;
    sync(folder)
}

impl Checkpoint {
    fn manifest(&self) -> Result<Manifest, Error> {
        let path = self.path.join(MANIFEST);
        let manifest = fs::read(&path).map_err(|error| failed(&path, error))?;
        let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|error| failed(&path, error))?;
        if manifest.schema != SCHEMA || manifest.iteration != self.iteration {
            return Err(failed(&path, format!("it is not the list of iteration {}", self.iteration)));
        }
        Ok(manifest)
    }

    /// Checks that every file has the size and hash of the manifest.
    fn check_files(&mut self) -> Result<(), Error> {
        let manifest = self.manifest()?;
        for (name, expected) in &manifest.files {
            let path = self.path.join(name);
            let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
            if ListedFile::of(&bytes) != *expected {
                return Err(failed(&path, "it is damaged: its SHA-256 is not that in checkpoint.json"));
            }
        }
        self.files = manifest.files.into_keys().collect();
        Ok(())
    }

    /// Returns the files whose names begin with a prefix.
    pub(super) fn paths(&self, prefix: &str) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|name| name.starts_with(prefix));
        files.map(|name| self.path.join(name)).collect()
    }

    /// Reads all tensors of the foreground by name, and compares the metadata of their files with a
    /// run's identity, if one is given.
    pub(super) fn read(&self, identity: Option<&Identity>) -> Result<Tensors, Error> {
        let mut all = Tensors::new();
        for path in self.paths(RANK_FILE_PREFIX) {
            let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
            if let Some(identity) = identity {
                check_identity(identity, &path, &bytes)?;
            }
            all.extend(tensors::parse(&bytes).map_err(|problem| failed(&path, problem))?);
        }
        Ok(all)
    }
}

fn check_identity(identity: &Identity, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| failed(path, error))?;
    for (name, expected) in identity {
        let found = header.metadata().as_ref().and_then(|metadata| metadata.get(name));
        if found != Some(expected) {
            let found = found.map_or("nothing", String::as_str);
            return Err(failed(path, format!("it is of {name} `{found}`, this run of `{expected}`")));
        }
    }
    Ok(())
}

pub(super) fn write_error(path: &Path, problem: impl Display) -> Error {
    Error::CheckpointNotWritten { path: path.into(), problem: problem.to_string() }
}

pub(super) fn failed(path: &Path, problem: impl Display) -> Error {
    Error::Checkpoint { path: path.into(), problem: problem.to_string() }
}

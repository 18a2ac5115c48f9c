//! Checkpoint folders: their files, and the manifest `checkpoint.json`, which lists the files with
//! the SHA-256 of each. A checkpoint whose files differ from its manifest is damaged.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::Evaluation;
use super::tensors::{self, Tensors};
use crate::Error;

/// Name of the manifest.
const MANIFEST: &str = "checkpoint.json";
/// Identifier of the format of checkpoints, in the manifest and in the metadata of the files.
pub(super) const SCHEMA: &str = "deeppool/checkpoint/v1";

/// A checkpoint on disk.
pub(super) struct Checkpoint {
    /// Folder with the files of this checkpoint only.
    pub(super) path: PathBuf,
    /// Number of completed iterations, from the name of the folder.
    pub(super) iteration: u64,
    /// Names of the files in the folder; empty until they were checked.
    files: Vec<String>,
}

/// The manifest of a checkpoint.
#[derive(Serialize, Deserialize)]
struct Manifest {
    schema: String,
    /// Number of completed iterations.
    iteration: u64,
    /// Fraction of the held-out samples that are classified correctly, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    /// Mean loss of the held-out samples, if it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_loss: Option<f64>,
    /// Settings of the run.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    settings: Settings,
    /// Files by name.
    files: BTreeMap<String, ListedFile>,
}

/// Entry of a file in the manifest.
#[derive(Serialize, Deserialize, PartialEq)]
pub(super) struct ListedFile {
    /// Size of the file.
    bytes: u64,
    /// SHA-256 of its content, in hexadecimal.
    sha256: String,
}

/// Names and values that must be equal in a checkpoint and the run that resumes from it: schema,
/// network, batch, seed and iteration. They are the metadata of the safetensors files.
pub(super) type Identity = [(String, String); 5];

/// Result of the search for a checkpoint to resume from.
#[derive(Default)]
pub(super) struct Found {
    /// The newest valid checkpoint; `None` if the run starts from iteration 0.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Errors of the damaged checkpoints that are newer than `checkpoint`, newest first.
    pub(super) damaged: Vec<Error>,
}

impl Found {
    /// Returns the number of completed iterations of the checkpoint; 0 without a checkpoint.
    pub(super) fn iteration(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.iteration)
    }
}

/// Returns the newest valid checkpoint in a folder of checkpoints, which are checked from the
/// newest on. A folder without checkpoints gives an empty result.
///
/// # Errors
/// [`Error::Checkpoint`] of the newest checkpoint if all of them are damaged, or of the folder if
/// it cannot be read.
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

/// Returns the checkpoint with the highest [score](Evaluation::score) in a folder of checkpoints,
/// and this score; of equal ones, the oldest. Checkpoints whose manifest cannot be read are
/// ignored, and other files are not checked. Returns `None` if no checkpoint was evaluated.
///
/// # Errors
/// [`Error::Checkpoint`] if the folder cannot be read.
pub(super) fn best(folder: &Path) -> Result<Option<(Checkpoint, f64)>, Error> {
    let known = list(folder)?.into_iter().filter_map(|checkpoint| {
        let manifest = checkpoint.manifest().ok()?;
        let score = manifest.test_accuracy.or_else(|| Some(-manifest.test_loss?))?;
        Some((checkpoint, score))
    });
    Ok(known.reduce(|best, other| if other.1 > best.1 { other } else { best }))
}

/// Returns the checkpoint with the best test results, as [`best`] does, and checks its files.
/// Returns `None` if no checkpoint has been evaluated.
///
/// # Errors
/// [`Error::Checkpoint`] if it is damaged, or the folder cannot be read.
pub(super) fn best_valid(folder: &Path) -> Result<Option<Checkpoint>, Error> {
    let Some((mut checkpoint, _)) = best(folder)? else { return Ok(None) };
    checkpoint.check_files()?;
    Ok(Some(checkpoint))
}

/// Returns the completely written checkpoints in a folder, oldest first, without checking their
/// files. The list is empty if the folder does not exist.
///
/// # Errors
/// [`Error::Checkpoint`] if the folder cannot be read.
pub(super) fn list(folder: &Path) -> Result<Vec<Checkpoint>, Error> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let entries = fs::read_dir(folder).map_err(|error| checkpoint_error(folder, error))?;
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

/// Settings by name. Values that are not readable are replaced by their hash.
pub(super) type Settings = BTreeMap<String, String>;

/// Prefix of the names of the ranks' own files.
const RANK_FILE_PREFIX: &str = "rank-";

/// Returns the name of the file with a rank's part of the foreground's state.
pub(super) fn file_name(rank: usize) -> String {
    format!("{RANK_FILE_PREFIX}{rank}.safetensors")
}

impl ListedFile {
    /// Computes the entry of a file with the given content.
    pub(super) fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: format!("{:x}", Sha256::digest(bytes)) }
    }
}

/// Removes the folders of the given checkpoints.
///
/// # Errors
/// [`Error::CheckpointNotWritten`] with the first folder that cannot be removed.
pub(super) fn remove(checkpoints: impl IntoIterator<Item = Checkpoint>) -> Result<(), Error> {
    checkpoints.into_iter().try_for_each(|one| {
        fs::remove_dir_all(&one.path).map_err(|error| checkpoint_write_error(&one.path, error))
    })
}

/// Waits until a file, or the entries of a folder, are on disk (`fsync`).
///
/// # Errors
/// [`Error::CheckpointNotWritten`] if that fails.
pub(super) fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| checkpoint_write_error(path, error))
}

/// Writes the manifest of a checkpoint into its folder. `iteration` is the number of completed
/// iterations, and `test` the results on the held-out samples if they were evaluated. `settings`
/// are those of the run. `files` has one JSON list per rank, of the names and entries of the rank's
/// files.
///
/// # Errors
/// [`Error::CheckpointNotWritten`] if a listed file is not in the folder or has another size, or
/// the manifest cannot be written.
pub(super) fn write_manifest(
    folder: &Path,
    (iteration, test): (u64, Option<Evaluation>),
    settings: &Settings,
    files: &[Vec<u8>],
) -> Result<(), Error> {
    let path = folder.join(MANIFEST);
    let files: Result<Vec<Vec<(String, ListedFile)>>, _> =
        files.iter().map(|file| serde_json::from_slice(file)).collect();
    let files: BTreeMap<String, ListedFile> =
        files.map_err(|error| checkpoint_write_error(&path, error))?.into_iter().flatten().collect();
    for (name, file) in &files {
        let there = fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
        if there != file.bytes {
            let problem =
                "the rank's file is not in the folder that rank 0 sees: give all ranks the same folder";
            return Err(checkpoint_write_error(&folder.join(name), problem));
        }
    }
    let settings = settings.clone();
    let test_accuracy = test.as_ref().and_then(|test| test.accuracy);
    let test_loss = test.map(|test| test.loss);
    let manifest = Manifest { schema: SCHEMA.into(), iteration, test_accuracy, test_loss, settings, files };
    let text =
        serde_json::to_string_pretty(&manifest).map_err(|error| checkpoint_write_error(&path, error))?;
    // The folder gets its final name when it is complete.
    fs::write(&path, text).map_err(|error| checkpoint_write_error(&path, error))?;
    sync(&path)?;
    sync(folder)
}

impl Checkpoint {
    fn manifest(&self) -> Result<Manifest, Error> {
        let path = self.path.join(MANIFEST);
        let manifest = fs::read(&path).map_err(|error| checkpoint_error(&path, error))?;
        // Editors may have added a byte order mark.
        let text = manifest.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&manifest);
        let manifest: Manifest =
            serde_json::from_slice(text).map_err(|error| checkpoint_error(&path, error))?;
        if manifest.schema != SCHEMA || manifest.iteration != self.iteration {
            return Err(checkpoint_error(
                &path,
                format!("it is not the list of iteration {}", self.iteration),
            ));
        }
        Ok(manifest)
    }

    /// Checks that every file has the size and hash of the manifest.
    fn check_files(&mut self) -> Result<(), Error> {
        let manifest = self.manifest()?;
        for (name, expected) in &manifest.files {
            let path = self.path.join(name);
            let bytes = fs::read(&path).map_err(|error| checkpoint_error(&path, error))?;
            if ListedFile::of(&bytes) != *expected {
                return Err(checkpoint_error(
                    &path,
                    "it is damaged: its SHA-256 is not that in checkpoint.json",
                ));
            }
        }
        self.files = manifest.files.into_keys().collect();
        Ok(())
    }

    /// Returns the settings of the run that wrote the checkpoint; none if it did not record them.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the manifest cannot be read.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        Ok(self.manifest()?.settings)
    }

    /// Returns the paths of the files whose names begin with a prefix; none if the files were not
    /// checked yet.
    pub(super) fn paths(&self, prefix: &str) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|name| name.starts_with(prefix));
        files.map(|name| self.path.join(name)).collect()
    }

    /// Reads all tensors of the foreground by name, and compares the metadata of their files with a
    /// run's identity, if one is given.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if a file cannot be read, or the identities differ.
    pub(super) fn read(&self, identity: Option<&Identity>) -> Result<Tensors, Error> {
        let mut all = Tensors::new();
        for path in self.paths(RANK_FILE_PREFIX) {
            let bytes = fs::read(&path).map_err(|error| checkpoint_error(&path, error))?;
            if let Some(identity) = identity {
                check_identity(identity, &path, &bytes)?;
            }
            all.extend(tensors::parse(&bytes).map_err(|problem| checkpoint_error(&path, problem))?);
        }
        Ok(all)
    }
}

fn check_identity(identity: &Identity, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| checkpoint_error(path, error))?;
    for (name, expected) in identity {
        let found = header.metadata().as_ref().and_then(|metadata| metadata.get(name));
        if found != Some(expected) {
            let found = found.map_or("nothing", String::as_str);
            return Err(checkpoint_error(
                path,
                format!("it is of {name} `{found}`, this run of `{expected}`"),
            ));
        }
    }
    Ok(())
}

/// Creates the [`Error::CheckpointNotWritten`] for the file or folder `path`.
pub(super) fn checkpoint_write_error(path: &Path, problem: impl Display) -> Error {
    Error::CheckpointNotWritten { path: path.into(), problem: problem.to_string() }
}

/// Creates the [`Error::Checkpoint`] for the file or folder `path`.
pub(super) fn checkpoint_error(path: &Path, problem: impl Display) -> Error {
    Error::Checkpoint { path: path.into(), problem: problem.to_string() }
}

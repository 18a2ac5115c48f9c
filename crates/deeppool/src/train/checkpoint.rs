//! Checkpoints: a folder `iteration-0000000100` for each, with a safetensors file from each rank that is the first of
//! some layer, and one for each background job of each rank. Tensors are named as in PyTorch (`conv1.weight`), their velocities `conv1.weight.velocity`, so that any
//! placement can go on from them. `checkpoint.json` lists the files with their SHA-256: without it, or where a file is another
//! one, it is no checkpoint.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::rank::Rank;
use super::tensors::Tensors;
use super::{CheckpointConfig, TrainConfig, tensors};
use crate::Error;
use crate::runtime::Backend;

/// The file that makes a folder of files a checkpoint.
const MANIFEST: &str = "checkpoint.json";
const SCHEMA: &str = "deeppool/checkpoint/v1";

/// A checkpoint on disk.
pub(super) struct Checkpoint {
    path: PathBuf,
    iteration: u64,
    /// Their names, once they have been checked.
    files: Vec<String>,
}

/// What is in a checkpoint's folder, beside this list.
#[derive(Serialize, Deserialize)]
struct Manifest {
    schema: String,
    iteration: u64,
    /// The part of the held-out samples that are classified right, where that was found out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    /// By name.
    files: BTreeMap<String, ListedFile>,
}

#[derive(Serialize, Deserialize, PartialEq)]
struct ListedFile {
    bytes: u64,
    sha256: String,
}

/// What a run can go on from.
#[derive(Default)]
pub(super) struct Found {
    /// The newest checkpoint that is whole; `None` to begin anew.
    pub(super) checkpoint: Option<Checkpoint>,
    /// Newer ones that are damaged, and what is wrong with them.
    pub(super) damaged: Vec<Error>,
}

impl Found {
    /// How many iterations are done.
    pub(super) fn iteration(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.iteration)
    }
}

/// The newest checkpoint to go on from, when that is wanted.
///
/// # Errors
/// When there are checkpoints, but nobody asked to go on from them: they would be lost. When all of them are damaged.
pub(super) fn find(config: &TrainConfig<'_>) -> Result<Found, Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(Found::default()) };
    if !checkpoint.resume {
        return match list(&checkpoint.folder)?.pop() {
            Some(newest) => {
                let problem = "the folder has checkpoints: resume from them, or give another folder";
                Err(failed(&newest.path, problem))
            }
            None => Ok(Found::default()),
        };
    }
    newest_whole(&checkpoint.folder)
}

/// The newest checkpoint in a folder that is whole. Reads them, the newest first, until one is.
///
/// # Errors
/// When all of them are damaged.
pub(super) fn newest_whole(folder: &Path) -> Result<Found, Error> {
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

/// The checkpoint in a folder with the highest test accuracy, and that; of several, the oldest. It may be damaged.
pub(super) fn best(folder: &Path) -> Result<Option<(Checkpoint, f64)>, Error> {
    let known = list(folder)?.into_iter().filter_map(|checkpoint| {
        let accuracy = checkpoint.manifest().ok()?.test_accuracy?;
        Some((checkpoint, accuracy))
    });
    Ok(known.reduce(|best, other| if other.1 > best.1 { other } else { best }))
}

/// As [`best`], if it is whole.
///
/// # Errors
/// When it is damaged.
pub(super) fn best_whole(folder: &Path) -> Result<Option<Checkpoint>, Error> {
    let Some((mut checkpoint, _)) = best(folder)? else { return Ok(None) };
    checkpoint.check_files()?;
    Ok(Some(checkpoint))
}

/// The complete checkpoints in a folder, oldest first.
fn list(folder: &Path) -> Result<Vec<Checkpoint>, Error> {
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

/// Writes a checkpoint, with the test accuracy if it is known, and these files of the rank's background jobs; all ranks take part. It
/// appears in the folder when it is complete.
pub(super) fn save<B: Backend>(
    config: &TrainConfig<'_>,
    rank: &mut Rank<'_, B>,
    (iteration, test_accuracy): (u64, Option<f64>),
    background: Vec<(String, Vec<u8>)>,
) -> Result<(), Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(()) };
    let path = checkpoint.folder.join(format!("iteration-{iteration:010}"));
    let unfinished = path.with_extension("unfinished");
    fs::create_dir_all(&unfinished).map_err(|error| failed(&unfinished, error))?;
    let number = rank.rank();
    let (state, device, loaded) = rank.state();
    let is_own = |layer| config.placement.ranks(layer).first() == Some(&number);
    let tensors = tensors::read(config.network, loaded.program(), (&*state, device), is_own)?;
    if let Some(tensor) = tensors::first_not_finite(&tensors) {
        return Err(Error::StateNotFinite { iteration, rank: number, tensor: tensor.to_owned() });
    }
    let mut files = background;
    if !tensors.is_empty() {
        let bytes = tensors::serialize(&tensors, identity(config, iteration));
        let bytes = bytes.map_err(|problem| unwritten(&unfinished.join(file_name(number)), problem))?;
        files.push((file_name(number), bytes));
    }
    let mut own: Vec<(String, ListedFile)> = Vec::new();
    for (name, bytes) in files {
        let file = unfinished.join(&name);
        let written =
            File::create(&file).and_then(|mut to| to.write_all(&bytes).and_then(|()| to.sync_all()));
        written.map_err(|error| unwritten(&file, error))?;
        own.push((name, ListedFile::of(&bytes)));
    }
    let own = serde_json::to_vec(&own).map_err(|error| unwritten(&unfinished, error))?;
    let files = rank.gather(&own)?;
    if number == 0 {
        write_manifest(&unfinished, (iteration, test_accuracy), &files)?;
        // Newer ones than this are damaged: otherwise this run would have begun with them.
        remove(list(&checkpoint.folder)?.into_iter().filter(|one| one.iteration >= iteration))?;
        fs::rename(&unfinished, &path).map_err(|error| unwritten(&path, error))?;
        sync(&checkpoint.folder)?;
        remove_old(checkpoint)?;
    }
    rank.barrier()
}

/// What the names of the ranks' own files begin with.
const OF_RANKS: &str = "rank-";

fn file_name(rank: usize) -> String {
    format!("{OF_RANKS}{rank}.safetensors")
}

impl ListedFile {
    fn of(bytes: &[u8]) -> Self {
        Self { bytes: bytes.len() as u64, sha256: format!("{:x}", Sha256::digest(bytes)) }
    }
}

/// Removes all but the newest checkpoints, and the best one if that is wanted.
fn remove_old(config: &CheckpointConfig) -> Result<(), Error> {
    let all = list(&config.folder)?;
    let best = if config.keep_best { best(&config.folder)? } else { None };
    let best = best.map(|(checkpoint, _)| checkpoint.iteration);
    let excess = all.len().saturating_sub(config.keep.max(1));
    remove(all.into_iter().take(excess).filter(|one| Some(one.iteration) != best))
}

fn remove(checkpoints: impl IntoIterator<Item = Checkpoint>) -> Result<(), Error> {
    checkpoints
        .into_iter()
        .try_for_each(|one| fs::remove_dir_all(&one.path).map_err(|error| unwritten(&one.path, error)))
}

/// Waits until a file, or what a folder lists, is on the disk.
fn sync(path: &Path) -> Result<(), Error> {
    File::open(path).and_then(|file| file.sync_all()).map_err(|error| unwritten(path, error))
}

/// Removes what runs have left that were killed while they wrote. Before any rank of this run writes.
pub(super) fn remove_unfinished(config: &TrainConfig<'_>) {
    let folder = config.checkpoint.as_ref().and_then(|checkpoint| fs::read_dir(&checkpoint.folder).ok());
    for entry in folder.into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with("iteration-"));
        if is_ours && path.extension().is_some_and(|extension| extension == "unfinished") {
            // What cannot be removed is written over.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Writes the list of what each rank has written, as JSON.
fn write_manifest(
    folder: &Path,
    (iteration, test_accuracy): (u64, Option<f64>),
    files: &[Vec<u8>],
) -> Result<(), Error> {
    let path = folder.join(MANIFEST);
    let files: Result<Vec<Vec<(String, ListedFile)>>, _> =
        files.iter().map(|file| serde_json::from_slice(file)).collect();
    let files: BTreeMap<String, ListedFile> =
        files.map_err(|error| unwritten(&path, error))?.into_iter().flatten().collect();
    for (name, file) in &files {
        let there = fs::metadata(folder.join(name)).map_or(0, |metadata| metadata.len());
        if there != file.bytes {
            let problem =
                "the rank's file is not in the folder that rank 0 sees: give all ranks the same folder";
            return Err(unwritten(&folder.join(name), problem));
        }
    }
    let manifest = Manifest { schema: SCHEMA.into(), iteration, test_accuracy, files };
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| unwritten(&path, error))?;
    whole_file::write(&path, text.as_bytes()).map_err(|error| unwritten(&path, error))?;
    sync(&path)?;
    sync(folder)
}

/// What a checkpoint must agree on with the run that goes on from it.
fn identity(config: &TrainConfig<'_>, iteration: u64) -> [(String, String); 5] {
    let entry = |name: &str, value: String| (name.to_owned(), value);
    [
        entry("schema", SCHEMA.into()),
        entry("model", config.network.name().into()),
        entry("batch", config.batch.to_string()),
        entry("seed", config.seed.to_string()),
        entry("iteration", iteration.to_string()),
    ]
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

    /// Makes sure that every file is there as it was written.
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

    /// Puts the checkpoint's tensors into a rank's state.
    pub(super) fn restore<B: Backend>(
        &self,
        config: &TrainConfig<'_>,
        rank: &mut Rank<'_, B>,
    ) -> Result<(), Error> {
        let tensors = self.read(Some(config))?;
        let (state, device, loaded) = rank.state();
        if let Some(problem) = tensors::misfit(config.network, loaded.program(), &tensors, true) {
            return Err(failed(&self.path, problem));
        }
        tensors::write(config.network, loaded.program(), (state, device), &tensors)
    }

    /// The files whose names begin so.
    pub(super) fn paths(&self, prefix: &str) -> Vec<PathBuf> {
        let files = self.files.iter().filter(|name| name.starts_with(prefix));
        files.map(|name| self.path.join(name)).collect()
    }

    /// All tensors of the foreground by name. Of the run that is given, if one is.
    pub(super) fn read(&self, config: Option<&TrainConfig<'_>>) -> Result<Tensors, Error> {
        let mut all = Tensors::new();
        for path in self.paths(OF_RANKS) {
            let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
            if let Some(config) = config {
                self.check_identity(config, &path, &bytes)?;
            }
            all.extend(tensors::parse(&bytes).map_err(|problem| failed(&path, problem))?);
        }
        Ok(all)
    }

    fn check_identity(&self, config: &TrainConfig<'_>, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(|error| failed(path, error))?;
        for (name, expected) in identity(config, self.iteration) {
            let found = header.metadata().as_ref().and_then(|metadata| metadata.get(&name));
            if found != Some(&expected) {
                let found = found.map_or("nothing", String::as_str);
                return Err(failed(path, format!("it is of {name} `{found}`, this run of `{expected}`")));
            }
        }
        Ok(())
    }
}

fn unwritten(path: &Path, problem: impl Display) -> Error {
    Error::CheckpointNotWritten { path: path.into(), problem: problem.to_string() }
}

pub(super) fn failed(path: &Path, problem: impl Display) -> Error {
    Error::Checkpoint { path: path.into(), problem: problem.to_string() }
}

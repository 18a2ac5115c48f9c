//! Saving a run's state as a checkpoint, and resuming from one.
//!
//! A checkpoint is a folder such as `iteration-0000000100`. It has one safetensors file for each
//! rank that is the first rank of some layer, and files of the background jobs. Tensors are named
//! as in PyTorch (`conv1.weight`), with their velocities (`conv1.weight.velocity`), which are the
//! momentum buffers of SGD, so that a run in which layers have other ranks or parts can resume from
//! them. Tensors of split layers are whole. `checkpoint.json` lists the files with their SHA-256. A
//! folder without it, or with a file that differs, is not a valid checkpoint.

use std::fs::{self, File};
use std::io::Write;

use super::checkpoint_files::{
    Checkpoint, Found, Identity, ListedFile, SCHEMA, Settings, best, checkpoint_error,
    checkpoint_write_error, file_name, list, newest_valid, remove, sync, write_manifest,
};
use super::folder_owner::{FolderOwner, check_unused};
use super::own_tensors::own_tensors;
use super::rank::Rank;
use super::settings;
use super::tensors;
use super::{CheckpointConfig, Evaluation, TrainConfig};
use crate::Error;
use crate::runtime::TrainingBackend;

/// Finds the newest valid checkpoint, if the configuration says that the run resumes. Otherwise
/// returns an empty result.
///
/// # Errors
/// [`Error::Checkpoint`] if there are checkpoints but the run does not resume, which would
/// overwrite them, if all of them are damaged, or if the folder cannot be read.
pub(super) fn find(config: &TrainConfig<'_>) -> Result<Found, Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(Found::default()) };
    check_unused(checkpoint)?;
    if checkpoint.resume { newest_valid(&checkpoint.folder) } else { Ok(Found::default()) }
}

/// Right of a run to write checkpoints to its folder, which rank 0 holds for all ranks.
pub(super) struct CheckpointWriter {
    owner: FolderOwner,
    settings: Settings,
}

impl CheckpointWriter {
    /// Acquires the folder of a run's checkpoints. Returns `None` if no checkpoints are configured.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if another run owns the folder, or if it cannot be written to.
    pub(super) fn acquire(config: &TrainConfig<'_>) -> Result<Option<Self>, Error> {
        let Some(checkpoint) = &config.checkpoint else { return Ok(None) };
        let owner = FolderOwner::acquire(checkpoint)?;
        Ok(Some(Self { owner, settings: settings::of_run(config) }))
    }

    /// Describes the settings of the run that differ from those of a checkpoint. Returns `None` if
    /// none differ.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the checkpoint cannot be read.
    pub(super) fn changed_settings(&self, checkpoint: &Checkpoint) -> Result<Option<String>, Error> {
        Ok(settings::difference(&checkpoint.settings()?, &self.settings))
    }
}

/// Writes a checkpoint after `iteration` completed iterations, with the results on the test
/// samples if it was evaluated there. `writer` is that of rank 0. `background` are the names and
/// contents of the files of this rank's background jobs. All ranks call it. The checkpoint appears
/// in the folder when it is complete. Old checkpoints beyond the configured number are removed.
/// Does nothing if no checkpoints are configured.
///
/// # Errors
/// [`Error::StateNotFinite`] if the state has a value that is not finite, before any file is
/// written. [`Error::CheckpointNotWritten`] or [`Error::Checkpoint`] if the file system fails, or
/// another run has taken the folder over. The errors of the device and the communicator.
pub(super) fn save<B: TrainingBackend>(
    config: &TrainConfig<'_>,
    rank: &mut Rank<'_, B>,
    writer: Option<&CheckpointWriter>,
    (iteration, test): (u64, Option<Evaluation>),
    background: Vec<(String, Vec<u8>)>,
) -> Result<(), Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(()) };
    let check = writer.map_or(Ok(()), |writer| writer.owner.check());
    // No rank writes to a folder that another run has taken over.
    if !rank.gather(&[u8::from(check.is_ok())])?.into_iter().flatten().all(|is_owned| is_owned == 1) {
        check?;
        let problem = "rank 0 cannot write here any more: this run ends";
        return Err(checkpoint_write_error(&checkpoint.folder, problem));
    }
    let path = checkpoint.folder.join(format!("iteration-{iteration:010}"));
    let unfinished = path.with_extension("unfinished");
    fs::create_dir_all(&unfinished).map_err(|error| checkpoint_error(&unfinished, error))?;
    let number = rank.rank();
    let (state, device, loaded, communicator) = rank.parts();
    let (network, placement) = (config.network(), config.placement());
    let parts = (&*state, device, loaded, Some(communicator));
    let tensors = own_tensors::<B>(network, placement, number, parts)?;
    if let Some(tensor) = tensors::first_not_finite(&tensors) {
        return Err(Error::StateNotFinite { iteration, rank: number, tensor: tensor.to_owned() });
    }
    let mut files = background;
    if !tensors.is_empty() {
        let bytes = tensors::serialize(&tensors, identity(config, iteration));
        let bytes =
            bytes.map_err(|problem| checkpoint_write_error(&unfinished.join(file_name(number)), problem))?;
        files.push((file_name(number), bytes));
    }
    let mut own: Vec<(String, ListedFile)> = Vec::new();
    for (name, bytes) in files {
        let file = unfinished.join(&name);
        let written =
            File::create(&file).and_then(|mut to| to.write_all(&bytes).and_then(|()| to.sync_all()));
        written.map_err(|error| checkpoint_write_error(&file, error))?;
        own.push((name, ListedFile::of(&bytes)));
    }
    let own = serde_json::to_vec(&own).map_err(|error| checkpoint_write_error(&unfinished, error))?;
    let files = rank.gather(&own)?;
    if number == 0 {
        let settings = writer.map(|writer| writer.settings.clone()).unwrap_or_default();
        write_manifest(&unfinished, (iteration, test), &settings, &files)?;
        // Newer ones are damaged: otherwise this run would have resumed from them.
        remove(list(&checkpoint.folder)?.into_iter().filter(|one| one.iteration >= iteration))?;
        fs::rename(&unfinished, &path).map_err(|error| checkpoint_write_error(&path, error))?;
        sync(&checkpoint.folder)?;
        remove_old(checkpoint)?;
    }
    rank.barrier()
}

/// Removes all but the newest checkpoints, and the best one if it is kept.
fn remove_old(config: &CheckpointConfig) -> Result<(), Error> {
    let all = list(&config.folder)?;
    let best = if config.keep_best { best(&config.folder)? } else { None };
    let best = best.map(|(checkpoint, _)| checkpoint.iteration);
    let excess = all.len().saturating_sub(config.keep.max(1));
    remove(all.into_iter().take(excess).filter(|one| Some(one.iteration) != best))
}

/// Removes the incomplete checkpoints that killed runs have left in the folder. Called before any
/// rank writes. Failures are ignored.
pub(super) fn remove_unfinished(config: &TrainConfig<'_>) {
    let folder = config.checkpoint.as_ref().and_then(|checkpoint| fs::read_dir(&checkpoint.folder).ok());
    for entry in folder.into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with("iteration-"));
        if is_ours && path.extension().is_some_and(|extension| extension == "unfinished") {
            // A folder that cannot be removed is overwritten.
            let _ = fs::remove_dir_all(path);
        }
    }
}

/// Returns the identity of a run, which must be equal in a checkpoint that it resumes from.
fn identity(config: &TrainConfig<'_>, iteration: u64) -> Identity {
    let entry = |name: &str, value: String| (name.to_owned(), value);
    [
        entry("schema", SCHEMA.into()),
        entry("model", config.network().name().into()),
        entry("batch", config.batch().to_string()),
        entry("seed", config.seed.to_string()),
        entry("iteration", iteration.to_string()),
    ]
}

/// Copies the foreground's tensors of a checkpoint to a rank's state.
///
/// # Errors
/// [`Error::Checkpoint`] if a file cannot be read, the checkpoint is of another network, batch or
/// seed, or a tensor is missing or has another shape. The error of the device if copying fails.
pub(super) fn restore<B: TrainingBackend>(
    checkpoint: &Checkpoint,
    config: &TrainConfig<'_>,
    rank: &mut Rank<'_, B>,
) -> Result<(), Error> {
    let tensors = checkpoint.read(Some(&identity(config, checkpoint.iteration)))?;
    let (state, device, loaded) = rank.state();
    if let Some(problem) = tensors::first_mismatch(config.network(), loaded.program(), &tensors, true) {
        return Err(checkpoint_error(&checkpoint.path, problem));
    }
    tensors::write(config.network(), loaded.program(), (state, device), &tensors)
}

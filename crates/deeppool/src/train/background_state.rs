//! The state of the background jobs in a checkpoint, in safetensors files: one per copy of a job,
//! and for a job on given ranks one per rank that is the first rank of some layer. A job is
//! identified by its index in `TrainConfig::background`.

use std::fs;
use std::path::Path;

use layer_graph::LayerGraph;
use safetensors::SafeTensors;

use super::checkpoint_files::{Checkpoint, checkpoint_error};
use super::own_tensors::own_tensors;
use super::tensors::{self, Tensors};
use super::{BackgroundConfig, TrainConfig};
use crate::Error;
use crate::runtime::{Backend, BatchSource, Iterations, LoadedProgram, Observer, RankDevice, RankState};

const NETWORK: &str = "model";
const ITERATIONS: &str = "iterations";

/// The state of a background job, or of one rank's copy of it.
pub(super) struct BackgroundState {
    /// Name of the network.
    network: String,
    /// Number of completed iterations.
    iterations: u64,
    /// Parameters, running statistics and velocities.
    tensors: Tensors,
}

impl BackgroundState {
    /// Reads a job's state for a rank from a checkpoint: its own, or, if the checkpoint has none
    /// for this rank, that of another rank. Returns `None` if no rank has one.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if the file cannot be read or lacks its metadata.
    pub(super) fn find(checkpoint: &Checkpoint, job: usize, rank: usize) -> Result<Option<Self>, Error> {
        let files = checkpoint.paths(&prefix(job));
        let own = checkpoint.paths(&file_name(job, rank)).into_iter().next();
        let Some(path) = own.or_else(|| files.get(rank % files.len().max(1)).cloned()) else {
            return Ok(None);
        };
        Self::read(&path).map(Some)
    }

    /// Reads the state of a job on given ranks from a checkpoint. Returns `None` if there is none.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub(super) fn find_whole(checkpoint: &Checkpoint, job: usize) -> Result<Option<Self>, Error> {
        let mut whole: Option<Self> = None;
        for path in checkpoint.paths(&part_prefix(job)) {
            let part = Self::read(&path)?;
            match &mut whole {
                Some(whole) => whole.tensors.extend(part.tensors),
                None => whole = Some(part),
            }
        }
        Ok(whole)
    }

    fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|error| checkpoint_error(path, error))?;
        let (_, header) =
            SafeTensors::read_metadata(&bytes).map_err(|error| checkpoint_error(path, error))?;
        let entry = |name: &str| {
            let entry = header.metadata().as_ref().and_then(|metadata| metadata.get(name)).cloned();
            entry.ok_or_else(|| checkpoint_error(path, format!("its metadata has no `{name}`")))
        };
        let iterations = entry(ITERATIONS)?.parse();
        let iterations =
            iterations.map_err(|_| checkpoint_error(path, "its number of iterations is invalid"))?;
        let tensors = tensors::parse(&bytes).map_err(|problem| checkpoint_error(path, problem))?;
        Ok(Self { network: entry(NETWORK)?, iterations, tensors })
    }

    /// Copies the state to the job's buffers and returns the index of the job's next iteration.
    /// Returns `None`, and copies nothing, if the state is of another network: its name differs, or
    /// a tensor is missing or has another shape.
    ///
    /// # Errors
    /// If the device fails.
    pub(super) fn restore<B: Backend>(
        &self,
        network: &LayerGraph,
        loaded: &LoadedProgram<B>,
        state: (&mut RankState<B>, &mut RankDevice<B>),
    ) -> Result<Option<u64>, Error> {
        let is_other = self.network != network.name()
            || tensors::first_mismatch(network, loaded.program(), &self.tensors, true).is_some();
        if is_other {
            return Ok(None);
        }
        tensors::write(network, loaded.program(), state, &self.tensors)?;
        Ok(Some(self.iterations))
    }
}

/// Returns the names and contents of the files of a rank's jobs. A job that has ended (`None`), or
/// has a value that is not finite, has no file. `groups` are the communicators of jobs on several
/// ranks. All ranks call it, with each such job ended on all of its ranks or on none, and at the
/// same iteration.
///
/// # Errors
/// If a job's state cannot be read from the device, or a communicator fails.
pub(super) fn files<B: Backend, S: BatchSource, O: Observer>(
    config: &TrainConfig<'_>,
    jobs: Vec<Option<&mut Iterations<'_, B, S, O>>>,
    groups: &[Option<B::Communicator>],
    rank: usize,
) -> Result<Vec<(String, Vec<u8>)>, Error> {
    let mut files = Vec::new();
    for (((index, job), running), group) in config.background_of(rank).zip(jobs).zip(groups) {
        let Some(running) = running else { continue };
        let iterations = running.iteration();
        let (state, device, loaded) = running.state();
        let (name, tensors) = if let Some(ranks) = &job.ranks {
            let place = loaded.program().rank;
            let parts = (state, device, loaded, group.as_ref());
            let own = own_tensors::<B>(job.network, ranks.placement(), place, parts)?;
            (format!("{}{place}.safetensors", part_prefix(index)), own)
        } else {
            let own = tensors::read(job.network, loaded.program(), (state, device), |_| true)?;
            (file_name(index, rank), own)
        };
        // A job without one of its files starts from the beginning.
        if !tensors.is_empty() && tensors::first_not_finite(&tensors).is_none() {
            files.push((name, serialize(job, iterations, &tensors)?));
        }
    }
    Ok(files)
}

fn serialize(job: &BackgroundConfig<'_>, iterations: u64, tensors: &Tensors) -> Result<Vec<u8>, Error> {
    let metadata = [(NETWORK, job.network.name().to_owned()), (ITERATIONS, iterations.to_string())];
    tensors::serialize(tensors, metadata.map(|(name, value)| (name.to_owned(), value)))
        .map_err(Error::Program)
}

/// Prefix of the names of the files of a job on given ranks.
fn part_prefix(job: usize) -> String {
    format!("background-{job}-part-")
}

/// Prefix of the names of the files of copies of a job.
fn prefix(job: usize) -> String {
    format!("background-{job}-rank-")
}

fn file_name(job: usize, rank: usize) -> String {
    format!("{}{rank}.safetensors", prefix(job))
}

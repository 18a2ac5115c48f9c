//! Checkpoints: a folder `iteration-0000000100` for each, with a safetensors file from each rank that is the first of
//! some layer. Tensors are named as in PyTorch (`conv1.weight`), their velocities `conv1.weight.velocity`, so that any
//! placement can go on from them. `checkpoint.json` lists the files with their SHA-256: without it, or where a file is another
//! one, it is no checkpoint.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use layer_engine::Role;
use layer_graph::{LayerId, LayerTensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::TrainConfig;
use super::rank::Rank;
use crate::Error;
use crate::program::{BufferId, Contents, RankProgram};
use crate::runtime::Backend;

/// The file that makes a folder of files a checkpoint.
const MANIFEST: &str = "checkpoint.json";
const SCHEMA: &str = "deeppool/checkpoint/v1";

/// A tensor in a file: its dimensions and elements.
type Tensor = (Vec<usize>, Vec<f32>);

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

/// The newest checkpoint to go on from, when that is wanted. Reads them, the newest first, until one is whole.
///
/// # Errors
/// When there are checkpoints, but nobody asked to go on from them: they would be lost. When all of them are damaged.
pub(super) fn find(config: &TrainConfig<'_>) -> Result<Found, Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(Found::default()) };
    let all = list(&checkpoint.folder)?;
    if let (Some(newest), false) = (all.last(), checkpoint.resume) {
        let problem = "the folder has checkpoints: resume from them, or give another folder";
        return Err(failed(&newest.path, problem));
    }
    let mut found = Found::default();
    for mut checkpoint in all.into_iter().rev() {
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

/// Writes a checkpoint; all ranks take part. It appears in the folder when it is complete.
pub(super) fn save<B: Backend>(
    config: &TrainConfig<'_>,
    rank: &mut Rank<'_, B>,
    iteration: u64,
) -> Result<(), Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(()) };
    let path = checkpoint.folder.join(format!("iteration-{iteration:010}"));
    let unfinished = path.with_extension("unfinished");
    fs::create_dir_all(&unfinished).map_err(|error| failed(&unfinished, error))?;
    let tensors = own_tensors(config, rank)?;
    if let Some((tensor, _)) =
        tensors.iter().find(|(_, (_, values))| values.iter().any(|value| !value.is_finite()))
    {
        return Err(Error::StateNotFinite { iteration, rank: rank.rank(), tensor: tensor.clone() });
    }
    if !tensors.is_empty() {
        let file = unfinished.join(file_name(rank.rank()));
        let bytes: Vec<Vec<u8>> = tensors
            .iter()
            .map(|(_, (_, values))| values.iter().flat_map(|value| value.to_le_bytes()).collect())
            .collect();
        let views: Result<Vec<_>, _> = tensors
            .iter()
            .zip(&bytes)
            .map(|((name, (dims, _)), bytes)| Ok((name, TensorView::new(Dtype::F32, dims.clone(), bytes)?)))
            .collect();
        let metadata = identity(config, iteration).into_iter().collect();
        views
            .and_then(|views| safetensors::serialize_to_file(views, Some(metadata), &file))
            .map_err(|error| failed(&file, error))?;
    }
    let own = if tensors.is_empty() { None } else { Some(written(&unfinished, &file_name(rank.rank()))?) };
    let own = serde_json::to_vec(&own).map_err(|error| failed(&unfinished, error))?;
    let files = rank.gather(&own)?;
    if rank.rank() == 0 {
        write_manifest(&unfinished, iteration, &files)?;
        // Of an earlier run, which was damaged: otherwise this run would have begun with it.
        if path.exists() {
            fs::remove_dir_all(&path).map_err(|error| failed(&path, error))?;
        }
        fs::rename(&unfinished, &path).map_err(|error| failed(&path, error))?;
        let mut all = list(&checkpoint.folder)?;
        for old in all.drain(..all.len().saturating_sub(checkpoint.keep.max(1))) {
            fs::remove_dir_all(&old.path).map_err(|error| failed(&old.path, error))?;
        }
    }
    rank.barrier()
}

fn file_name(rank: usize) -> String {
    format!("rank-{rank}.safetensors")
}

/// A file's entry of the manifest, once it is on the disk.
fn written(folder: &Path, name: &str) -> Result<(String, ListedFile), Error> {
    let path = folder.join(name);
    File::open(&path).and_then(|file| file.sync_all()).map_err(|error| failed(&path, error))?;
    Ok((name.to_owned(), listed(&path)?))
}

fn listed(path: &Path) -> Result<ListedFile, Error> {
    let bytes = fs::read(path).map_err(|error| failed(path, error))?;
    let sha256 = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(ListedFile { bytes: bytes.len() as u64, sha256 })
}

/// Writes the list of what each rank has written, as JSON.
fn write_manifest(folder: &Path, iteration: u64, files: &[Vec<u8>]) -> Result<(), Error> {
    let path = folder.join(MANIFEST);
    let files: Result<Vec<Option<(String, ListedFile)>>, _> =
        files.iter().map(|file| serde_json::from_slice(file)).collect();
    let files = files.map_err(|error| failed(&path, error))?.into_iter().flatten().collect();
    let manifest = Manifest { schema: SCHEMA.into(), iteration, files };
    let text = serde_json::to_string_pretty(&manifest).map_err(|error| failed(&path, error))?;
    Ok(whole_file::write(&path, text.as_bytes())?)
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

/// The tensors of the layers whose first rank this is.
fn own_tensors<B: Backend>(
    config: &TrainConfig<'_>,
    rank: &mut Rank<'_, B>,
) -> Result<Vec<(String, Tensor)>, Error> {
    let number = rank.rank();
    let (state, device, loaded) = rank.state();
    let mut tensors = Vec::new();
    for (id, contents) in state_buffers(loaded.program()) {
        let (layer, suffix, parts) = named(config, contents);
        if config.placement.ranks(layer).first() != Some(&number) {
            continue;
        }
        let elements = parts.iter().map(LayerTensor::elements).sum();
        let values = state.read(device, id, elements)?;
        let mut rest = values.as_slice();
        for part in parts {
            let (own, others) = rest.split_at(part.elements());
            rest = others;
            tensors.push((tensor_name(config, layer, &part, suffix), (part.dims, own.to_vec())));
        }
    }
    Ok(tensors)
}

/// The state buffers of a rank's program.
fn state_buffers(program: &RankProgram) -> impl Iterator<Item = (BufferId, Contents)> + '_ {
    let buffers = program.buffers[..program.state_buffers].iter().enumerate();
    buffers.map(|(index, spec)| (BufferId(index), spec.contents))
}

/// The layer of a state buffer, what is added to its tensors' names, and the tensors in it.
fn named(config: &TrainConfig<'_>, contents: Contents) -> (LayerId, &'static str, Vec<LayerTensor>) {
    let network = config.network;
    match contents {
        Contents::Operand(layer, Role::Statistics) => (layer, "", network.layer(layer).statistics()),
        Contents::Operand(layer, _) => (layer, "", network.layer(layer).parameters()),
        Contents::Velocity(layer) => (layer, ".velocity", network.layer(layer).parameters()),
        // No program has other state.
        _ => (network.input(), "", Vec::new()),
    }
}

fn tensor_name(config: &TrainConfig<'_>, layer: LayerId, part: &LayerTensor, suffix: &str) -> String {
    format!("{}.{}{suffix}", config.network.layer(layer).name(), part.name)
}

impl Checkpoint {
    /// Makes sure that every file is there as it was written.
    fn check_files(&mut self) -> Result<(), Error> {
        let path = self.path.join(MANIFEST);
        let manifest = fs::read(&path).map_err(|error| failed(&path, error))?;
        let manifest: Manifest = serde_json::from_slice(&manifest).map_err(|error| failed(&path, error))?;
        if manifest.schema != SCHEMA || manifest.iteration != self.iteration {
            return Err(failed(&path, format!("it is not the list of iteration {}", self.iteration)));
        }
        for (name, expected) in &manifest.files {
            let path = self.path.join(name);
            if listed(&path)? != *expected {
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
        let tensors = self.read(config)?;
        let (state, device, loaded) = rank.state();
        let buffers: Vec<_> = state_buffers(loaded.program()).collect();
        for (id, contents) in buffers {
            let (layer, suffix, parts) = named(config, contents);
            let mut values = Vec::new();
            for part in parts {
                let name = tensor_name(config, layer, &part, suffix);
                let Some((dims, found)) = tensors.get(&name) else {
                    return Err(failed(&self.path, format!("tensor `{name}` is missing")));
                };
                if *dims != part.dims {
                    let problem = format!("tensor `{name}` is {dims:?}, expected {:?}", part.dims);
                    return Err(failed(&self.path, problem));
                }
                values.extend_from_slice(found);
            }
            state.write(device, id, &values)?;
        }
        Ok(())
    }

    /// All tensors by name.
    fn read(&self, config: &TrainConfig<'_>) -> Result<HashMap<String, Tensor>, Error> {
        let mut tensors = HashMap::new();
        for path in self.files.iter().map(|name| self.path.join(name)) {
            let bytes = fs::read(&path).map_err(|error| failed(&path, error))?;
            self.check_identity(config, &path, &bytes)?;
            let file = SafeTensors::deserialize(&bytes).map_err(|error| failed(&path, error))?;
            for (name, view) in file.iter() {
                if view.dtype() != Dtype::F32 {
                    return Err(failed(&path, format!("tensor `{name}` is not in single precision")));
                }
                let values =
                    view.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
                tensors.insert(name.to_owned(), (view.shape().to_vec(), values.collect()));
            }
        }
        Ok(tensors)
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

fn failed(path: &Path, problem: impl Display) -> Error {
    Error::Checkpoint { path: path.into(), problem: problem.to_string() }
}

//! Checkpoints: a folder `iteration-0000000100` for each, with a safetensors file from each rank that is the first of
//! some layer. Tensors are named as in PyTorch (`conv1.weight`), their velocities `conv1.weight.velocity`, so that any
//! placement can go on from them.

use std::collections::HashMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};

use layer_engine::Role;
use layer_graph::{LayerId, LayerTensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::TrainConfig;
use super::rank::Rank;
use crate::Error;
use crate::program::{BufferId, Contents, RankProgram};
use crate::runtime::Backend;

/// How many checkpoints are kept.
const KEPT: usize = 2;

/// A tensor in a file: its dimensions and elements.
type Tensor = (Vec<usize>, Vec<f32>);

/// A checkpoint on disk.
pub(super) struct Checkpoint {
    path: PathBuf,
    iteration: u64,
}

/// The newest checkpoint to go on from, when that is wanted.
///
/// # Errors
/// When there are checkpoints, but nobody asked to go on from them: they would be lost.
pub(super) fn find(config: &TrainConfig<'_>) -> Result<Option<Checkpoint>, Error> {
    let Some(checkpoint) = &config.checkpoint else { return Ok(None) };
    let newest = list(&checkpoint.folder)?.pop();
    match newest {
        Some(newest) if !checkpoint.resume => {
            let problem = "the folder has checkpoints: resume from them, or give another folder";
            Err(Error::Checkpoint { path: newest.path, problem: problem.into() })
        }
        newest => Ok(newest),
    }
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
            Some(Checkpoint { path: entry.path(), iteration })
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
        let file = unfinished.join(format!("rank-{}.safetensors", rank.rank()));
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
    rank.barrier()?;
    if rank.rank() == 0 {
        if !path.exists() {
            fs::rename(&unfinished, &path).map_err(|error| failed(&path, error))?;
        }
        let mut all = list(&checkpoint.folder)?;
        for old in all.drain(..all.len().saturating_sub(KEPT)) {
            fs::remove_dir_all(&old.path).map_err(|error| failed(&old.path, error))?;
        }
    }
    rank.barrier()
}

/// What a checkpoint must agree on with the run that goes on from it.
fn identity(config: &TrainConfig<'_>, iteration: u64) -> [(String, String); 5] {
    let entry = |name: &str, value: String| (name.to_owned(), value);
    [
        entry("schema", "deeppool/checkpoint/v1".into()),
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
    /// How many iterations it has behind it.
    pub(super) fn iteration(&self) -> u64 {
        self.iteration
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
        let entries = fs::read_dir(&self.path).map_err(|error| failed(&self.path, error))?;
        for entry in entries.filter_map(Result::ok) {
            let path = entry.path();
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

//! The parameters and running statistics of a network, as a file.

use std::path::{Path, PathBuf};

use collectives::ThreadCommunicator;
use layer_engine::CpuEngine;
use layer_graph::LayerGraph;

use super::checkpoint_files::{best_whole, newest_whole};
use super::tensors::{self, Tensors, VELOCITY};
use crate::Error;
use crate::program::{LowerOptions, Placement, Program, lower_training};
use crate::runtime::{Backend, Cpu, LoadedProgram, RankDevice, RankState};

/// The parameters and running statistics of a network, by layer and name, in PyTorch's layouts: `conv1.weight` of output x input x
/// height x width, `bn1.running_mean`.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// The file or folder that they are from, for errors.
    origin: PathBuf,
    tensors: Tensors,
}

impl Weights {
    /// Those that a run with this seed begins with.
    ///
    /// # Errors
    /// When the network has no loss, or the engine refuses it.
    pub fn initial(network: &LayerGraph, seed: u64) -> Result<Self, Error> {
        type OnThread = Cpu<ThreadCommunicator>;
        let program = one_rank(network)?;
        let mut device = RankDevice::<OnThread>::new(CpuEngine::new())?;
        let loaded = LoadedProgram::new(&mut device, None, network, &program, 0)?;
        let state = RankState::new(&mut device, network, loaded.program(), seed)?;
        let all = tensors::read(network, loaded.program(), (&state, &mut device), |_| true)?;
        Ok(Self { origin: PathBuf::from(network.name()), tensors: without_velocities(all) })
    }

    /// Those of a safetensors file.
    ///
    /// # Errors
    /// When it cannot be read or is none.
    pub fn load(path: &Path) -> Result<Self, Error> {
        let problem = |problem: String| Error::File { path: path.into(), problem };
        let bytes = whole_file::read(path).map_err(|error| problem(error.to_string()))?;
        let all = tensors::parse(&bytes).map_err(problem)?;
        Ok(Self { origin: path.into(), tensors: without_velocities(all) })
    }

    /// Those of the newest whole checkpoint in a folder. Newer ones that are damaged are told of.
    ///
    /// # Errors
    /// When there is none.
    pub fn of_checkpoint(folder: &Path, damaged: impl FnMut(&Error)) -> Result<Self, Error> {
        let none = || Error::Checkpoint { path: folder.into(), problem: "there is no checkpoint".into() };
        let found = newest_whole(folder)?;
        found.damaged.iter().for_each(damaged);
        let checkpoint = found.checkpoint.ok_or_else(none)?;
        Ok(Self { origin: folder.into(), tensors: without_velocities(checkpoint.read(None)?) })
    }

    /// Those of the checkpoint in a folder with the highest test accuracy, of those that were written with one.
    ///
    /// # Errors
    /// When there is none, or it is damaged.
    pub fn of_best_checkpoint(folder: &Path) -> Result<Self, Error> {
        let none = || Error::Checkpoint {
            path: folder.into(),
            problem: "no checkpoint was written with a test accuracy: train with --checkpoint-best".into(),
        };
        let checkpoint = best_whole(folder)?.ok_or_else(none)?;
        Ok(Self { origin: folder.into(), tensors: without_velocities(checkpoint.read(None)?) })
    }

    /// Writes them as a safetensors file.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), Error> {
        let problem = |problem| Error::File { path: path.into(), problem };
        Ok(whole_file::write(path, tensors::serialize(&self.tensors, []).map_err(problem)?)?)
    }

    /// The number of tensors.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Makes sure that they are those of this network.
    ///
    /// # Errors
    /// With the first tensor that is missing, has another shape, or is of no layer.
    pub fn check(&self, network: &LayerGraph) -> Result<(), Error> {
        let program = one_rank(network)?;
        let misfit = tensors::misfit(network, program.of_rank(0)?, &self.tensors, false);
        let unknown = || {
            let known = network.layers().flat_map(|(_, layer)| {
                let tensors = layer.parameters().into_iter().chain(layer.statistics());
                tensors.map(|tensor| layer.tensor_name(&tensor)).collect::<Vec<_>>()
            });
            let known: Vec<String> = known.collect();
            let name = self.tensors.keys().find(|name| !known.contains(name))?;
            Some(format!("tensor `{name}` is of no layer of `{}`", network.name()))
        };
        match misfit.or_else(unknown) {
            Some(problem) => Err(Error::File { path: self.origin.clone(), problem }),
            None => Ok(()),
        }
    }

    /// What ranks compare: as a safetensors file has them.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        tensors::serialize(&self.tensors, []).unwrap_or_default()
    }

    /// Copies them to a rank's state.
    pub(super) fn write_to<B: Backend>(
        &self,
        network: &LayerGraph,
        (state, device, loaded): (&mut RankState<B>, &mut RankDevice<B>, &LoadedProgram<B>),
    ) -> Result<(), Error> {
        tensors::write(network, loaded.program(), (state, device), &self.tensors)
    }
}

fn one_rank(network: &LayerGraph) -> Result<Program, Error> {
    lower_training(network, &Placement::single(network)?, 1, &LowerOptions::default())
}

fn without_velocities(all: Tensors) -> Tensors {
    all.into_iter().filter(|(name, _)| !name.ends_with(VELOCITY)).collect()
}

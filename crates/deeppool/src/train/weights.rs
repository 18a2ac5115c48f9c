//! The weights of a network: its parameters and the running statistics of batch normalisation.

use std::path::Path;

use collectives::ThreadCommunicator;
use layer_engine::CpuEngine;
use layer_graph::LayerGraph;

use super::checkpoint_files::{best_valid, newest_valid};
use super::tensors::{self, Tensors, VELOCITY};
use crate::Error;
use crate::program::{LowerOptions, Placement, Program, lower_training};
use crate::runtime::{Backend, Cpu, LoadedProgram, RankDevice, RankState};

/// The parameters and running statistics of a network in single precision, by PyTorch's names such
/// as `bn1.running_mean`, and in PyTorch's layouts: the weight of a convolution, `conv1.weight`, is
/// output channels x input channels x height x width.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    /// Name of the file, folder or network that they come from, for errors.
    source_name: String,
    tensors: Tensors,
}

impl Weights {
    /// Returns the random initial weights of a run with the given seed.
    ///
    /// # Errors
    /// The errors of [`lower_training`] for its losses. [`Error::Engine`] if the engine does not
    /// support a layer.
    pub fn initial(network: &LayerGraph, seed: u64) -> Result<Self, Error> {
        type OnThread = Cpu<ThreadCommunicator>;
        let program = one_rank(network)?;
        let mut device = RankDevice::<OnThread>::new(CpuEngine::new())?;
        let loaded = LoadedProgram::new(&mut device, None, network, &program, 0)?;
        let state = RankState::new(&mut device, network, loaded.program(), seed)?;
        let all = tensors::read(network, loaded.program(), (&state, &mut device), |_| true)?;
        Ok(Self { source_name: network.name().into(), tensors: without_velocities(all) })
    }

    /// Reads weights from the content of a safetensors file. Its velocities are ignored. Error
    /// messages begin with `source_name`, such as the file's path.
    ///
    /// # Errors
    /// [`Error::Weights`] if it is not a safetensors file, or a tensor is not in single precision
    /// or has an element that is not finite.
    pub fn from_safetensors(source_name: impl Into<String>, content: &[u8]) -> Result<Self, Error> {
        let source_name = source_name.into();
        let finite = |all: Tensors| match tensors::first_not_finite(&all) {
            None => Ok(without_velocities(all)),
            Some(name) => Err(format!("tensor `{name}` has an element that is infinite or NaN")),
        };
        match tensors::parse(content).and_then(finite) {
            Ok(tensors) => Ok(Self { source_name, tensors }),
            Err(problem) => Err(Error::Weights { source_name, problem }),
        }
    }

    /// Reads the weights of the newest valid checkpoint in a folder of checkpoints. Newer
    /// checkpoints are damaged: a file is missing or differs from the checkpoint's list of files.
    /// `damaged` is called with the error of each of them, from the newest on.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if there is no checkpoint, all are damaged, or a file cannot be read.
    pub fn of_checkpoint(folder: &Path, damaged: impl FnMut(&Error)) -> Result<Self, Error> {
        let none = || Error::Checkpoint { path: folder.into(), problem: "there is no checkpoint".into() };
        let found = newest_valid(folder)?;
        found.damaged.iter().for_each(damaged);
        let checkpoint = found.checkpoint.ok_or_else(none)?;
        Ok(Self {
            source_name: folder.display().to_string(),
            tensors: without_velocities(checkpoint.read(None)?),
        })
    }

    /// Reads the weights of the checkpoint with the highest test accuracy, or the lowest test loss
    /// if the network has no accuracy, in a folder of checkpoints. Checkpoints in the middle of an
    /// epoch have neither and are ignored.
    ///
    /// # Errors
    /// [`Error::Checkpoint`] if no checkpoint was evaluated, the best one is damaged, or the folder
    /// cannot be read.
    pub fn of_best_checkpoint(folder: &Path) -> Result<Self, Error> {
        let none = || Error::Checkpoint {
            path: folder.into(),
            problem: "no checkpoint was written with test results: train with --checkpoint-best".into(),
        };
        let checkpoint = best_valid(folder)?.ok_or_else(none)?;
        Ok(Self {
            source_name: folder.display().to_string(),
            tensors: without_velocities(checkpoint.read(None)?),
        })
    }

    /// Returns the content of a safetensors file with the weights.
    ///
    /// # Errors
    /// [`Error::Weights`] if a tensor cannot be stored.
    pub fn to_safetensors(&self) -> Result<Vec<u8>, Error> {
        tensors::serialize(&self.tensors, [])
            .map_err(|problem| Error::Weights { source_name: self.source_name.clone(), problem })
    }

    /// Returns the number of tensors: parameters and running statistics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tensors.len()
    }

    /// Returns whether there are no tensors.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Checks that the tensors are those of `network`, by name and shape.
    ///
    /// # Errors
    /// [`Error::Weights`] with the first tensor that is missing, has another shape, or belongs to
    /// no layer. The errors of [`lower_training`] for the losses.
    pub fn check(&self, network: &LayerGraph) -> Result<(), Error> {
        let program = one_rank(network)?;
        let first_mismatch = tensors::first_mismatch(network, program.of_rank(0)?, &self.tensors, false);
        let unknown = || {
            let known = network.layers().flat_map(|(_, layer)| {
                let tensors = layer.parameters().into_iter().chain(layer.statistics());
                tensors.map(|tensor| layer.tensor_name(&tensor)).collect::<Vec<_>>()
            });
            let known: Vec<String> = known.collect();
            let name = self.tensors.keys().find(|name| !known.contains(name))?;
            Some(format!("tensor `{name}` is of no layer of `{}`", network.name()))
        };
        match first_mismatch.or_else(unknown) {
            Some(problem) => Err(Error::Weights { source_name: self.source_name.clone(), problem }),
            None => Ok(()),
        }
    }

    /// Returns the weights in the safetensors format, by which ranks compare them.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        tensors::serialize(&self.tensors, []).unwrap_or_default()
    }

    /// Copies the weights to a rank's state, which keeps its velocities.
    ///
    /// # Errors
    /// If the device fails.
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

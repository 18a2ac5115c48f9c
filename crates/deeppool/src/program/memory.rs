//! The memory of a rank.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use layer_engine::Role;
use layer_graph::LayerId;
use serde::{Deserialize, Serialize};

use super::{BufferId, BufferSpec, Contents, ELEMENT_BYTES, Program, RankProgram};
use crate::Error;

/// Memory of a rank during training by kind, in bytes: what is in
/// use at the fullest step, and the rest of what is allocated.
///
/// State has separate memory. All other buffers are in one arena, where buffers that are not in use
/// at the same time share memory. The workspaces of kernels, which depend on the engine, are not
/// included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RankMemory {
    /// Parameters, and running statistics of batch normalisation.
    pub parameters_bytes: u64,
    /// Gradients of parameters.
    pub gradients_bytes: u64,
    /// Velocities (momentum) and master parameters of the optimiser.
    pub optimizer_bytes: u64,
    /// Loaded samples and labels, outputs of layers, and other values that forward steps save for
    /// the backward pass.
    pub activations_bytes: u64,
    /// Gradients of the outputs and inputs of layers.
    pub activation_gradients_bytes: u64,
    /// Copies of activations and gradients from other ranks.
    pub communication_bytes: u64,
    /// Sums of batch normalisation, the loss and the number of correct samples, and the squared
    /// gradient norm.
    pub workspace_bytes: u64,
    /// The part of the arena that is not in use at the fullest step: alignment, and gaps between
    /// buffers. In plan files of earlier versions, the memory of recomputed activations.
    #[serde(default, alias = "recomputed_bytes")]
    pub unused_bytes: u64,
}

impl RankMemory {
    /// Returns the sum of all kinds, in bytes: the memory that the rank allocates.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.by_kind().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// Returns the name of each kind of memory with its size in bytes.
    #[must_use]
    pub fn by_kind(&self) -> [(&'static str, u64); 8] {
        [
            ("parameters", self.parameters_bytes),
            ("gradients", self.gradients_bytes),
            ("optimiser", self.optimizer_bytes),
            ("activations", self.activations_bytes),
            ("gradients of activations", self.activation_gradients_bytes),
            ("communication", self.communication_bytes),
            ("workspace", self.workspace_bytes),
            ("unused", self.unused_bytes),
        ]
    }

    fn of(&mut self, contents: Contents) -> &mut u64 {
        match kind(contents) {
            Kind::Parameters => &mut self.parameters_bytes,
            Kind::Gradients => &mut self.gradients_bytes,
            Kind::Optimizer => &mut self.optimizer_bytes,
            Kind::Activations => &mut self.activations_bytes,
            Kind::ActivationGradients => &mut self.activation_gradients_bytes,
            Kind::Communication => &mut self.communication_bytes,
            Kind::Workspace => &mut self.workspace_bytes,
        }
    }
}

/// Kind of memory: a field of [`RankMemory`], in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Parameters,
    Gradients,
    Optimizer,
    Activations,
    ActivationGradients,
    Communication,
    Workspace,
}

fn kind(contents: Contents) -> Kind {
    match contents {
        Contents::Operand(_, role) => match role {
            Role::Parameters | Role::Statistics => Kind::Parameters,
            Role::ParameterGradient => Kind::Gradients,
            Role::Input(_) | Role::Labels | Role::Output | Role::Saved => Kind::Activations,
            Role::OutputGradient | Role::InputGradient(_) => Kind::ActivationGradients,
            Role::Moments | Role::GradientMoments | Role::Metrics => Kind::Workspace,
        },
        Contents::Velocity(_) | Contents::Master(_) => Kind::Optimizer,
        Contents::Constant(_) => Kind::ActivationGradients,
        Contents::Moved(_) | Contents::Packed(_) => Kind::Communication,
        Contents::SquaredNorm => Kind::Workspace,
    }
}

/// Contents of a rank's memory at its fullest step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullestMoment {
    /// The rank.
    pub rank: usize,
    /// Label of the step, such as `backward conv1`.
    pub step: String,
    /// Memory of each layer by kind, in descending order.
    pub layers: Vec<LayerMemory>,
}

/// Memory of one kind that a rank uses for a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerMemory {
    /// The layer; `None` for buffers of no layer, such as constants.
    pub layer: Option<LayerId>,
    /// Name of the kind, as in [`RankMemory::by_kind`].
    pub kind: &'static str,
    /// Size in bytes.
    pub bytes: u64,
}

impl RankProgram {
    /// Returns the contents of the memory at the step with the maximum memory in use, if the steps
    /// run in their order. O(steps + dependencies + operands + buffers x log buffers).
    #[must_use]
    pub fn fullest_moment(&self) -> FullestMoment {
        let (step, alive) = self.fullest_step();
        let mut by_layer: BTreeMap<(Option<LayerId>, Kind), u64> = BTreeMap::new();
        for id in (0..self.state().len()).map(BufferId).chain(alive) {
            let contents = self.buffers[id.0].contents;
            let layer = match contents {
                Contents::Operand(layer, _)
                | Contents::Velocity(layer)
                | Contents::Master(layer)
                | Contents::Moved(layer)
                | Contents::Packed(layer) => Some(layer),
                Contents::Constant(_) | Contents::SquaredNorm => None,
            };
            *by_layer.entry((layer, kind(contents))).or_default() += self.buffers[id.0].bytes();
        }
        let names = RankMemory::default().by_kind().map(|(name, _)| name);
        let mut layers: Vec<LayerMemory> = by_layer
            .into_iter()
            .map(|((layer, kind), bytes)| LayerMemory { layer, kind: names[kind as usize], bytes })
            .collect();
        layers.sort_by_key(|layer| Reverse(layer.bytes));
        let step = self.steps.get(step.0).map(|step| step.label.clone()).unwrap_or_default();
        FullestMoment { rank: self.rank, step, layers }
    }
}

/// Returns the memory that a rank allocates for the programs of
/// [`lower_rotation`](super::lower_rotation), without the workspaces of its kernels: that of the
/// iteration with the fullest step.
///
/// # Errors
/// [`Error::NoSuchRank`] for an unknown rank.
pub fn rotation_memory(programs: &[Program], rank: usize) -> Result<RankMemory, Error> {
    let of_rank: Vec<&RankProgram> =
        programs.iter().map(|program| program.of_rank(rank)).collect::<Result<_, _>>()?;
    Ok(RankMemory::of_rotation(of_rank))
}

impl RankMemory {
    /// Returns the memory for programs of one rank with the same buffers: that of the program with
    /// the fullest step. Zero for no programs.
    pub(crate) fn of_rotation<'p>(programs: impl IntoIterator<Item = &'p RankProgram>) -> Self {
        let memory = programs.into_iter().map(RankProgram::memory);
        memory.min_by_key(|memory| memory.unused_bytes).unwrap_or_default()
    }
}

impl RankProgram {
    /// Returns the memory that the rank allocates to execute this program, without the workspaces
    /// of its kernels. O(steps + dependencies + buffers x log buffers).
    #[must_use]
    pub fn memory(&self) -> RankMemory {
        let mut memory = RankMemory::default();
        for buffer in self.state() {
            *memory.of(buffer.contents) += buffer.bytes();
        }
        let mut used = 0;
        for id in self.fullest_step().1 {
            *memory.of(self.buffers[id.0].contents) += self.buffers[id.0].bytes();
            used += self.buffers[id.0].bytes();
        }
        memory.unused_bytes = bytes(self.arena_elements).saturating_sub(used);
        memory
    }

    /// The buffers that outlive an iteration.
    fn state(&self) -> &[BufferSpec] {
        &self.buffers[..self.state_buffers.min(self.buffers.len())]
    }

    /// Returns the maximum memory in use at one step, in bytes, if the steps run in their order:
    /// the state and the buffers that hold a value that is still needed.
    ///
    /// It is less than the [allocated memory](Self::memory) by alignment and gaps between buffers.
    /// With partial backpropagation, it is the memory of this iteration, and memory is allocated
    /// for the iteration with the maximum.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let memory = self.memory();
        memory.total_bytes() - memory.unused_bytes
    }

    /// Returns the total of the [allocated memory](Self::memory), in bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.state().iter().map(BufferSpec::bytes).sum::<u64>() + self.scratch_bytes()
    }

    /// Returns the part of the [allocated memory](Self::memory) that is not state, in bytes.
    /// Programs of the same network and placement share the state: parameters, velocities and
    /// running statistics.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        bytes(self.arena_elements)
    }
}

impl BufferSpec {
    /// Returns the size of the buffer in bytes.
    fn bytes(&self) -> u64 {
        bytes(self.scalars())
    }
}

fn bytes(scalars: usize) -> u64 {
    scalars as u64 * ELEMENT_BYTES
}

impl Program {
    /// Returns the memory of the rank with the maximum memory; of several, the first.
    #[must_use]
    pub fn memory_peak(&self) -> RankMemory {
        self.fullest_rank().map(RankProgram::memory).unwrap_or_default()
    }

    /// Returns the maximum memory of a rank, in bytes. O(buffers).
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        self.ranks.iter().map(RankProgram::total_bytes).max().unwrap_or_default()
    }

    /// Returns the program of the rank with the maximum memory; of several, the first.
    #[must_use]
    pub fn fullest_rank(&self) -> Option<&RankProgram> {
        self.ranks.iter().rev().max_by_key(|program| program.total_bytes())
    }
}

//! The memory of a rank. A *bucket* is also the buffer into which several buffers of a collective
//! are packed.

use layer_engine::Role;
use serde::{Deserialize, Serialize};

use super::{Contents, ELEMENT_BYTES, Op, Program, RankProgram, Step};
use crate::Error;

/// Memory of a rank during training by kind, in bytes, with values of single precision.
///
/// Buffers are allocated for the whole run, so the sum is also the peak. The workspaces of kernels,
/// which depend on the engine, are not included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct RankMemory {
    /// Parameters, and running statistics of batch normalisation.
    pub parameters_bytes: u64,
    /// Gradients of parameters.
    pub gradients_bytes: u64,
    /// Velocities (momentum) of the optimiser.
    pub optimizer_bytes: u64,
    /// Loaded samples and labels, outputs of layers, and other values that forward steps save for
    /// the backward pass.
    pub activations_bytes: u64,
    /// Gradients of the outputs and inputs of layers.
    pub activation_gradients_bytes: u64,
    /// Copies of activations and gradients from other ranks, and buckets.
    pub communication_bytes: u64,
    /// Sums of batch normalisation, the loss and the number of correct samples, and the squared
    /// gradient norm.
    pub workspace_bytes: u64,
    /// Memory that activations between activation checkpoints, and their gradients, use one after
    /// another; 0 without checkpoints.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub recomputed_bytes: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(bytes: &u64) -> bool {
    *bytes == 0
}

impl RankMemory {
    /// Returns the sum of all kinds, in bytes.
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
            ("recomputed activations", self.recomputed_bytes),
        ]
    }

    fn of(&mut self, contents: Contents) -> &mut u64 {
        match contents {
            Contents::Operand(_, role) => match role {
                Role::Parameters | Role::Statistics => &mut self.parameters_bytes,
                Role::ParameterGradient => &mut self.gradients_bytes,
                Role::Input(_) | Role::Labels | Role::Output | Role::Saved => &mut self.activations_bytes,
                Role::OutputGradient | Role::InputGradient(_) => &mut self.activation_gradients_bytes,
                Role::Moments | Role::GradientMoments | Role::Metrics => &mut self.workspace_bytes,
            },
            Contents::Velocity(_) => &mut self.optimizer_bytes,
            Contents::Constant(_) => &mut self.activation_gradients_bytes,
            Contents::Moved(_) => &mut self.communication_bytes,
            Contents::SquaredNorm => &mut self.workspace_bytes,
        }
    }
}

/// Returns the memory that a rank allocates for the programs of
/// [`lower_rotation`](super::lower_rotation), without the workspaces of its kernels.
///
/// # Errors
/// [`Error::NoSuchRank`] for an unknown rank.
pub fn rotation_memory(programs: &[Program], rank: usize) -> Result<RankMemory, Error> {
    let of_rank: Vec<&RankProgram> =
        programs.iter().map(|program| program.of_rank(rank)).collect::<Result<_, _>>()?;
    Ok(RankMemory::of_rotation(of_rank))
}

impl RankMemory {
    /// Returns the memory for programs of one rank with the same buffers: these once, and the
    /// buckets of each program. Zero for no programs.
    pub(crate) fn of_rotation<'p>(programs: impl IntoIterator<Item = &'p RankProgram>) -> Self {
        let mut programs = programs.into_iter();
        let mut memory = programs.next().map(RankProgram::memory).unwrap_or_default();
        memory.communication_bytes += programs.map(RankProgram::bucket_bytes).sum::<u64>();
        memory
    }
}

impl RankProgram {
    /// Returns the memory that the rank allocates to execute this program, without the workspaces
    /// of its kernels: all buffers and buckets.
    #[must_use]
    pub fn memory(&self) -> RankMemory {
        let bytes = |elements: usize| elements as u64 * ELEMENT_BYTES;
        let recomputed_bytes = self.shared_elements.iter().map(|&elements| bytes(elements)).sum();
        let mut memory = RankMemory { recomputed_bytes, ..RankMemory::default() };
        for buffer in self.buffers.iter().filter(|buffer| buffer.shared.is_none()) {
            *memory.of(buffer.contents) += bytes(buffer.elements);
        }
        memory.communication_bytes += self.bucket_bytes();
        memory
    }

    /// Returns the size of all buckets.
    fn bucket_bytes(&self) -> u64 {
        self.steps.iter().map(|step| self.bucket_bytes_of(step)).sum()
    }

    /// Returns the size of a step's bucket; 0 if it has none.
    fn bucket_bytes_of(&self, step: &Step) -> u64 {
        let writes = if step.is_bucket() { &step.writes[..] } else { &[] };
        writes.iter().map(|id| self.buffers[id.0].elements as u64).sum::<u64>() * ELEMENT_BYTES
    }

    /// Returns the maximum memory in use at one time, in bytes, if each buffer were allocated from
    /// its first to its last use in the order of the steps. State, constants and shared memory are
    /// always in use.
    ///
    /// It is less than the [allocated memory](Self::memory), since buffers have fixed addresses.
    /// With partial backpropagation it is the memory of this iteration: activations that no
    /// backward step reads are not needed after the forward pass.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let bytes = |elements: usize| elements as u64 * ELEMENT_BYTES;
        let mut uses: Vec<Option<(usize, usize)>> = vec![None; self.buffers.len()];
        for (at, step) in self.steps.iter().enumerate() {
            for id in step.reads.iter().chain(&step.writes) {
                let first = uses[id.0].map_or(at, |(first, _)| first);
                uses[id.0] = Some((first, at));
            }
        }
        let mut always: u64 = self.shared_elements.iter().map(|&elements| bytes(elements)).sum();
        // Memory that is in use from each step on, and up to each step.
        let (mut from, mut until) = (vec![0; self.steps.len()], vec![0; self.steps.len()]);
        for (index, (spec, used)) in self.buffers.iter().zip(uses).enumerate() {
            let is_kept = index < self.state_buffers || matches!(spec.contents, Contents::Constant(_));
            match used {
                _ if spec.shared.is_some() => {}
                _ if is_kept => always += bytes(spec.elements),
                Some((first, last)) => {
                    from[first] += bytes(spec.elements);
                    until[last] += bytes(spec.elements);
                }
                None => {}
            }
        }
        let (mut held, mut peak) = (always, always);
        for (at, step) in self.steps.iter().enumerate() {
            held += from[at];
            peak = peak.max(held + self.bucket_bytes_of(step));
            held -= until[at];
        }
        peak
    }

    /// Returns the part of the [allocated memory](Self::memory) that is not state, in bytes.
    /// Programs of the same network and placement share the state: parameters, velocities and
    /// running statistics.
    #[must_use]
    pub fn scratch_bytes(&self) -> u64 {
        let state = &self.buffers[..self.state_buffers];
        let state_bytes: u64 = state.iter().map(|buffer| buffer.elements as u64 * ELEMENT_BYTES).sum();
        self.memory().total_bytes() - state_bytes
    }
}

impl Step {
    /// Returns whether the step is a collective on several buffers. They are packed into one
    /// buffer.
    pub(crate) fn is_bucket(&self) -> bool {
        matches!(self.op, Op::Collective(_)) && self.writes.len() > 1
    }
}

impl Program {
    /// Returns the memory of the rank that needs most; of several, the first.
    #[must_use]
    pub fn memory_peak(&self) -> RankMemory {
        let all = self.ranks.iter().map(RankProgram::memory);
        all.reduce(|peak, next| if next.total_bytes() > peak.total_bytes() { next } else { peak })
            .unwrap_or_default()
    }
}

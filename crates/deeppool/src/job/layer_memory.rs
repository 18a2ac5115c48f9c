//! The memory of a layer on one rank, for the planner's memory model.

use std::collections::HashSet;

use burst_planner::NodeMemory;
use layer_engine::{Pass, Precision, Role, Signature, Storage};
use layer_graph::{Layer, LayerGraph, LayerId};

use crate::program::{ARENA_ALIGNMENT, ELEMENT_BYTES, backward_passes, forward_passes};

/// Size of a part of the memory of a layer as a function of its number of samples.
#[derive(Debug, Clone, Copy, Default)]
struct PartBytes {
    /// Bytes that do not depend on the number of samples.
    fixed: u64,
    per_sample: u64,
}

impl PartBytes {
    fn of(layer: &Layer, role: Role, precision: Precision) -> Self {
        let element_bytes = match role.storage(layer, precision) {
            Storage::Scalar => ELEMENT_BYTES,
            Storage::Bf16 => ELEMENT_BYTES / 2,
        };
        let bytes = |samples| role.elements(layer, samples) as u64 * element_bytes;
        Self { fixed: bytes(0), per_sample: bytes(1) - bytes(0) }
    }

    fn add(&mut self, other: Self) {
        self.fixed += other.fixed;
        self.per_sample += other.per_sample;
    }

    /// Returns the size for a number of samples, rounded up as buffers in an arena are.
    fn on(&self, samples: usize) -> u64 {
        (self.fixed + self.per_sample * samples as u64)
            .next_multiple_of(ARENA_ALIGNMENT as u64 * ELEMENT_BYTES)
    }
}

/// Sizes of the buffers that lowering allocates for a layer on one rank, as functions of its number
/// of samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LayerBytes {
    /// Buffers that are in use during the whole iteration.
    held: PartBytes,
    /// Loaded samples.
    loaded: PartBytes,
    /// Values that the forward step saves for the backward step, besides the output.
    saved: PartBytes,
    /// Buffers that are in use during a step only.
    step: PartBytes,
    output: PartBytes,
}

impl LayerBytes {
    /// Returns the sizes for layer `id`, or for `layer`, a part of it. `needs_gradient` is whether
    /// each layer needs a gradient, by layer index. Only layers that need one have buffers of the
    /// backward pass. `precision` is that of the layers.
    pub(super) fn of(
        network: &LayerGraph,
        (id, layer): (LayerId, &Layer),
        needs_gradient: &[bool],
        precision: Precision,
    ) -> Self {
        let producers = network.producers(id);
        let of = |role| PartBytes::of(layer, role, precision);
        let mut bytes = Self { output: of(Role::Output), ..Self::default() };
        if let Some(slot) = producers.iter().position(|&producer| network.is_input(producer)) {
            bytes.loaded = of(Role::Input(slot));
            // The model counts one buffer of samples for each list of ranks: of several inputs, all
            // of them, which is at least what is loaded.
            if network.inputs().len() > 1 {
                let elements = network.input_elements(producers[slot]).len() as u64;
                let of_element = bytes.loaded.per_sample / elements.max(1);
                bytes.loaded.per_sample = of_element * network.sample_elements() as u64;
            }
        }
        let wants_gradient = |producer: &LayerId| needs_gradient[producer.index()];
        let backward = if needs_gradient[id.index()] {
            backward_passes(network, id, producers.iter().any(wants_gradient))
        } else {
            &[]
        };
        for role in operands(layer, forward_passes(network, id).iter().chain(backward)) {
            let part = match role {
                Role::Statistics | Role::Metrics | Role::Moments | Role::GradientMoments => &mut bytes.held,
                Role::Saved | Role::Labels => &mut bytes.saved,
                // The planner counts the gradient of each input that needs one once.
                Role::InputGradient(slot) => match producers.get(slot) {
                    Some(producer) if wants_gradient(producer) && !producers[..slot].contains(producer) => {
                        continue;
                    }
                    _ => &mut bytes.step,
                },
                _ => continue,
            };
            part.add(of(role));
        }
        if needs_gradient[id.index()] && network.consumers(id).is_empty() {
            // The gradient of the mean loss with respect to each sample's loss.
            bytes.held.per_sample += ELEMENT_BYTES;
        }
        bytes
    }

    /// Returns the memory of the layer on a rank with the given number of samples, in bytes.
    pub(super) fn on(&self, samples: usize) -> NodeMemory {
        NodeMemory {
            held_bytes: self.held.on(samples),
            samples_bytes: self.loaded.on(samples),
            saved_bytes: self.saved.on(samples),
            step_bytes: self.step.on(samples),
            output_bytes: self.output.on(samples),
        }
    }
}

/// Returns the operands of passes.
fn operands<'p>(layer: &Layer, passes: impl Iterator<Item = &'p Pass>) -> HashSet<Role> {
    let signatures = passes.filter_map(|&pass| Signature::of(layer, pass));
    signatures.flat_map(|signature| signature.reads.into_iter().chain(signature.writes)).collect()
}

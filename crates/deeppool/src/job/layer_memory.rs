//! The memory of a layer on one rank, for the planner's memory model.

use std::collections::HashSet;

use burst_planner::NodeMemory;
use layer_engine::{Pass, Role, Signature};
use layer_graph::{Layer, LayerGraph, LayerId};

use crate::program::{ELEMENT_BYTES, backward_passes, forward_passes};

/// Sizes of the buffers that lowering allocates for a layer on one rank, as functions of its number
/// of samples.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LayerBytes {
    /// Bytes that do not depend on the number of samples.
    fixed: u64,
    /// Bytes per sample, without the loaded samples.
    per_sample: u64,
    loaded_per_sample: u64,
    /// The part of `fixed` that the forward step saves for the backward step, besides the output.
    saved_fixed: u64,
    saved_per_sample: u64,
    output_per_sample: u64,
}

impl LayerBytes {
    /// Returns the sizes for layer `id`. `needs_gradient` is whether each layer needs a gradient,
    /// by layer index. Only layers that need one have buffers of the backward pass.
    pub(super) fn of(network: &LayerGraph, id: LayerId, needs_gradient: &[bool]) -> Self {
        let layer = network.layer(id);
        let producers = network.producers(id);
        let mut bytes = Self { output_per_sample: layer.output_bytes(), ..Self::default() };
        if producers.contains(&network.input()) {
            bytes.loaded_per_sample = network.layer(network.input()).output_bytes();
        }
        let wants_gradient = |producer: &LayerId| needs_gradient[producer.index()];
        let backward = if needs_gradient[id.index()] {
            backward_passes(network, id, producers.iter().any(wants_gradient))
        } else {
            &[]
        };
        for role in operands(layer, forward_passes(network, id).iter().chain(backward)) {
            let elements = |samples| role.elements(layer, samples) as u64;
            let (fixed, per_sample) =
                (elements(0) * ELEMENT_BYTES, (elements(1) - elements(0)) * ELEMENT_BYTES);
            bytes.fixed += fixed;
            bytes.per_sample += per_sample;
            if role == Role::Saved {
                (bytes.saved_fixed, bytes.saved_per_sample) = (fixed, per_sample);
            }
        }
        if !needs_gradient[id.index()] {
            return bytes;
        }
        if network.consumers(id).is_empty() {
            // The gradient of the mean loss with respect to each sample's loss.
            bytes.per_sample += ELEMENT_BYTES;
        }
        // The sum of the gradients of an input that is read more than once.
        let mut again: Vec<LayerId> = producers.iter().copied().filter(wants_gradient).collect();
        again.retain(|producer| producers.iter().filter(|other| *other == producer).count() > 1);
        again.sort_unstable();
        again.dedup();
        bytes.per_sample +=
            again.into_iter().map(|producer| network.layer(producer).output_bytes()).sum::<u64>();
        bytes
    }

    /// Returns the memory of the layer on a rank with the given number of samples, in bytes.
    pub(super) fn on(&self, samples: usize) -> NodeMemory {
        let samples = samples as u64;
        NodeMemory {
            held_bytes: self.fixed + self.per_sample * samples,
            samples_bytes: self.loaded_per_sample * samples,
            saved_bytes: self.saved_fixed + self.saved_per_sample * samples,
            output_bytes: self.output_per_sample * samples,
        }
    }
}

/// Returns the operands of passes that are the layer's own: neither inputs nor parameters nor the
/// gradient of the output.
fn operands<'p>(layer: &Layer, passes: impl Iterator<Item = &'p Pass>) -> HashSet<Role> {
    let signatures = passes.filter_map(|&pass| Signature::of(layer, pass));
    let roles = signatures.flat_map(|signature| signature.reads.into_iter().chain(signature.writes));
    roles.filter(|role| !matches!(role, Role::Input(_) | Role::Parameters | Role::OutputGradient)).collect()
}

//! What layers need on a rank, as the planner asks for it.

use std::collections::HashSet;

use burst_planner::NodeMemory;
use layer_engine::{Pass, Role, Signature};
use layer_graph::{Layer, LayerGraph, LayerId};

use crate::program::ELEMENT_BYTES;

/// What a layer needs, by its samples: the buffers that lowering makes for it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LayerBytes {
    /// However many samples there are.
    fixed: u64,
    /// For each sample, beside the samples themselves.
    a_sample: u64,
    loaded_a_sample: u64,
    /// Of both what the forward step leaves beside the output.
    saved_fixed: u64,
    saved_a_sample: u64,
    output_a_sample: u64,
}

impl LayerBytes {
    pub(super) fn of(network: &LayerGraph, id: LayerId, needs_gradient: &[bool]) -> Self {
        let layer = network.layer(id);
        let producers = network.producers(id);
        let mut bytes = Self { output_a_sample: layer.output_bytes(), ..Self::default() };
        if producers.contains(&network.input()) {
            bytes.loaded_a_sample = network.layer(network.input()).output_bytes();
        }
        let wants_gradient = |producer: &LayerId| needs_gradient[producer.index()];
        let backward = if needs_gradient[id.index()] {
            Pass::backward(layer, producers.iter().any(wants_gradient))
        } else {
            &[]
        };
        for role in operands(layer, Pass::forward(layer).iter().chain(backward)) {
            let elements = |samples| role.elements(layer, samples) as u64;
            let (fixed, a_sample) =
                (elements(0) * ELEMENT_BYTES, (elements(1) - elements(0)) * ELEMENT_BYTES);
            bytes.fixed += fixed;
            bytes.a_sample += a_sample;
            if role == Role::Saved {
                (bytes.saved_fixed, bytes.saved_a_sample) = (fixed, a_sample);
            }
        }
        if !needs_gradient[id.index()] {
            return bytes;
        }
        if network.consumers(id).is_empty() {
            // The gradient of the mean loss by each sample's.
            bytes.a_sample += ELEMENT_BYTES;
        }
        // The sum of the gradients of an input that is read more than once.
        let mut again: Vec<LayerId> = producers.iter().copied().filter(wants_gradient).collect();
        again.retain(|producer| producers.iter().filter(|other| *other == producer).count() > 1);
        again.sort_unstable();
        again.dedup();
        bytes.a_sample +=
            again.into_iter().map(|producer| network.layer(producer).output_bytes()).sum::<u64>();
        bytes
    }

    pub(super) fn on(&self, samples: usize) -> NodeMemory {
        let samples = samples as u64;
        NodeMemory {
            held_bytes: self.fixed + self.a_sample * samples,
            samples_bytes: self.loaded_a_sample * samples,
            saved_bytes: self.saved_fixed + self.saved_a_sample * samples,
            output_bytes: self.output_a_sample * samples,
        }
    }
}

/// What passes read and write, but for what is another layer's or counted as parameters.
fn operands<'p>(layer: &Layer, passes: impl Iterator<Item = &'p Pass>) -> HashSet<Role> {
    let signatures = passes.filter_map(|&pass| Signature::of(layer, pass));
    let roles = signatures.flat_map(|signature| signature.reads.into_iter().chain(signature.writes));
    roles.filter(|role| !matches!(role, Role::Input(_) | Role::Parameters | Role::OutputGradient)).collect()
}

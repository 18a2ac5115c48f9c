//! Recomputation of activations: which outputs are kept for the backward pass, and which are
//! computed again. A *checkpoint* is an activation checkpoint.

use std::collections::HashSet;

use burst_planner::BackwardReads;
use layer_engine::{Role, Signature};
use layer_graph::{LayerGraph, LayerId, NetworkSplits};

use super::{Placement, backward_passes};
use crate::Error;

/// Returns the layers that can be activation checkpoints, in topological order. A layer can be one
/// if every other layer except the inputs comes before or after it on paths from the inputs to the
/// loss. The loss cannot.
///
/// O(layers x (layers + edges)).
#[must_use]
pub fn possible_checkpoints(network: &LayerGraph) -> Vec<LayerId> {
    let layers = network.computing_layers().map(|(id, _)| id);
    layers.filter(|&id| can_be_checkpoint(network, id)).collect()
}

fn can_be_checkpoint(network: &LayerGraph, id: LayerId) -> bool {
    if network.consumers(id).is_empty() {
        return false;
    }
    let before = reached(network, id, |id| network.producers(id));
    let after = reached(network, id, |id| network.consumers(id).into_iter().map(|(id, _)| id).collect());
    let others = before.union(&after).filter(|&&other| !network.is_input(other) && other != id).count();
    others + 1 == network.computing_layers().len()
}

/// Returns the layers that are reachable from a layer, itself included.
fn reached(network: &LayerGraph, from: LayerId, next: impl Fn(LayerId) -> Vec<LayerId>) -> HashSet<LayerId> {
    let mut reached = HashSet::with_capacity(network.len());
    let mut left = vec![from];
    while let Some(id) = left.pop() {
        if reached.insert(id) {
            left.extend(next(id));
        }
    }
    reached
}

/// Returns the layers with these names, in the given order.
///
/// # Errors
/// [`Error::Setting`] if one is not a [possible checkpoint](possible_checkpoints), or they are not
/// in the network's order with each of them once.
pub(crate) fn checkpoints(network: &LayerGraph, names: &[String]) -> Result<Vec<LayerId>, Error> {
    let of_name = |name: &String| {
        let refused = |expected| {
            Err(Error::Setting { setting: "a checkpoint of activations", expected, got: format!("`{name}`") })
        };
        match network.find(name) {
            None => refused("a layer of the network"),
            Some(id) if network.is_input(id) || !can_be_checkpoint(network, id) => {
                refused("a layer that all others but the loss come before or after")
            }
            Some(id) => Ok(id),
        }
    };
    let checkpoints: Vec<LayerId> = names.iter().map(of_name).collect::<Result<_, Error>>()?;
    match checkpoints.windows(2).position(|pair| pair[0] >= pair[1]) {
        None => Ok(checkpoints),
        Some(place) => Err(Error::Setting {
            setting: "the order of checkpoints of activations",
            expected: "the network's, with each of them once",
            got: format!("`{}` after `{}`", names[place + 1], names[place]),
        }),
    }
}

/// Returns which activations a layer's backward step reads or updates; none if it has no backward
/// step.
/// `needs_gradient` is whether each layer needs a gradient, by layer id.
pub(crate) fn backward_reads(network: &LayerGraph, id: LayerId, needs_gradient: &[bool]) -> BackwardReads {
    if !needs_gradient[id.index()] {
        return BackwardReads { input: false, output: false, saved: false };
    }
    let layer = network.layer(id);
    let input_gradient = network.producers(id).iter().any(|producer| needs_gradient[producer.index()]);
    let passes = backward_passes(network, id, input_gradient).iter();
    let signatures = passes.filter_map(|&pass| Signature::of(layer, pass));
    let reads: Vec<Role> =
        signatures.flat_map(|signature| signature.reads.into_iter().chain(signature.writes)).collect();
    BackwardReads {
        input: reads.iter().any(|role| matches!(role, Role::Input(_))),
        output: reads.contains(&Role::Output),
        saved: reads.iter().any(|role| matches!(role, Role::Saved | Role::Labels)),
    }
}

/// Returns whether a layer's output may be recomputed: at least one layer reads it, and each reads
/// it once.
pub(crate) fn is_read_once(network: &LayerGraph, id: LayerId) -> bool {
    let mut consumers = network.consumers(id);
    let reads = consumers.len();
    consumers.sort_unstable();
    consumers.dedup_by_key(|(consumer, _)| *consumer);
    reads > 0 && consumers.len() == reads
}

/// Partition of the activations into those that are kept and those that are recomputed. A *segment*
/// is the layers after one checkpoint up to and including the next one; the layers after the last
/// checkpoint are also a segment.
///
/// An output is *local* if it is used only within its segment, on the ranks that computed it. If
/// the backward pass needs a local output, it is recomputed when the backward pass reaches the end
/// of the segment, and its memory is free until then. In the last segment it is still there.
pub(super) struct Recomputation {
    /// Segment of each layer, by layer id.
    segment: Vec<usize>,
    is_recomputed: Vec<bool>,
    is_checkpoint: Vec<bool>,
}

impl Recomputation {
    /// Determines the recomputation for `checkpoints`, which are in the network's order. Without
    /// checkpoints all activations are kept.
    pub(super) fn new(network: &LayerGraph, placement: &Placement, checkpoints: &[LayerId]) -> Self {
        let layers = network.len();
        let mut found = Self {
            segment: vec![0; layers],
            is_recomputed: vec![false; layers],
            is_checkpoint: vec![false; layers],
        };
        if checkpoints.is_empty() {
            return found;
        }
        for id in checkpoints {
            found.is_checkpoint[id.index()] = true;
        }
        let mut segment = 0;
        for &id in placement.order() {
            found.segment[id.index()] = segment;
            segment += usize::from(found.is_checkpoint[id.index()]);
        }
        let needs_gradient = network.needs_gradient();
        let splits = placement.is_split().then(|| NetworkSplits::new(network));
        let values = |id: LayerId| placement.values(splits.as_ref(), id);
        for &id in placement.order().iter().rev() {
            let consumers = network.consumers(id);
            let is_beside = |consumer: LayerId| {
                found.segment[consumer.index()] == found.segment[id.index()]
                    && placement.ranks(consumer) == placement.ranks(id)
                    && placement.division(consumer).parts == placement.division(id).parts
                    && values(consumer).input == values(id).output
            };
            let is_local =
                is_read_once(network, id) && consumers.iter().all(|&(consumer, _)| is_beside(consumer));
            let own = backward_reads(network, id, &needs_gradient);
            let is_needed = own.output
                || own.saved
                || consumers.iter().any(|&(consumer, _)| {
                    found.is_recomputed[consumer.index()]
                        || backward_reads(network, consumer, &needs_gradient).input
                });
            found.is_recomputed[id.index()] = is_local && is_needed && found.segment[id.index()] < segment;
        }
        found
    }

    /// Returns the layers that are recomputed before the backward step of layer `id`, in `order`,
    /// the order in which layers run. Empty unless `id` is a checkpoint.
    pub(super) fn before_backward(&self, id: LayerId, order: &[LayerId]) -> Vec<LayerId> {
        if !self.is_checkpoint[id.index()] {
            return Vec::new();
        }
        let segment = self.segment[id.index()];
        let is_here =
            |other: &LayerId| self.is_recomputed[other.index()] && self.segment[other.index()] == segment;
        order.iter().copied().filter(is_here).collect()
    }
}

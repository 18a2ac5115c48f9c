//! Which activations are kept for the backward pass, and which are computed again in it.

use std::collections::HashSet;

use burst_planner::BackwardReads;
use layer_engine::{Pass, Role, Signature};
use layer_graph::{LayerGraph, LayerId};

use super::Placement;
use crate::Error;

/// The layers that can be checkpoints: every other layer but the input comes either before or after one of them, on the way from
/// the input to the loss, and it is not the loss itself. In topological order.
///
/// O(layers x (layers + connections)).
#[must_use]
pub fn possible_checkpoints(network: &LayerGraph) -> Vec<LayerId> {
    let layers = network.layers().skip(1).map(|(id, _)| id);
    layers.filter(|&id| can_be_checkpoint(network, id)).collect()
}

fn can_be_checkpoint(network: &LayerGraph, id: LayerId) -> bool {
    if network.consumers(id).is_empty() {
        return false;
    }
    let input = network.input();
    let before = reached(network, id, |id| network.producers(id));
    let after = reached(network, id, |id| network.consumers(id).into_iter().map(|(id, _)| id).collect());
    let others = before.union(&after).filter(|&&other| other != input && other != id).count();
    // All but itself and the input.
    others + 2 == network.len()
}

/// The layers that are reached from one, itself among them.
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

/// The layers of these names, which have to be [possible checkpoints](possible_checkpoints), each once and in the network's order.
pub(crate) fn checkpoints(network: &LayerGraph, names: &[String]) -> Result<Vec<LayerId>, Error> {
    let of_name = |name: &String| {
        let refused = |expected| {
            Err(Error::Setting { setting: "a checkpoint of activations", expected, got: format!("`{name}`") })
        };
        match network.find(name) {
            None => refused("a layer of the network"),
            Some(id) if id == network.input() || !can_be_checkpoint(network, id) => {
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

/// What a layer's backward step reads of the activations; nothing where it has none.
pub(crate) fn backward_reads(network: &LayerGraph, id: LayerId, needs_gradient: &[bool]) -> BackwardReads {
    if !needs_gradient[id.index()] {
        return BackwardReads { input: false, output: false };
    }
    let layer = network.layer(id);
    let input_gradient = network.producers(id).iter().any(|producer| needs_gradient[producer.index()]);
    let signatures =
        Pass::backward(layer, input_gradient).iter().filter_map(|&pass| Signature::of(layer, pass));
    let reads: Vec<Role> = signatures.flat_map(|signature| signature.reads).collect();
    BackwardReads {
        input: reads.iter().any(|role| matches!(role, Role::Input(_))),
        output: reads.iter().any(|role| matches!(role, Role::Output | Role::Saved)),
    }
}

/// Whether a layer's output can be left to be computed again: every consumer reads it once.
pub(crate) fn is_read_once(network: &LayerGraph, id: LayerId) -> bool {
    let mut consumers = network.consumers(id);
    let reads = consumers.len();
    consumers.sort_unstable();
    consumers.dedup_by_key(|(consumer, _)| *consumer);
    reads > 0 && consumers.len() == reads
}

/// Which activations are kept, and which are computed again. The layers up to a checkpoint, after the one before it, are a segment; those after the last
/// checkpoint are one, too.
///
/// An output that is used within its segment alone, on the ranks that computed it, is *local*: its memory, and that of its gradient,
/// is also that of other segments. Where the backward pass needs it, it is computed again when the backward pass comes to
/// the segment's end. In the last segment it is still there.
pub(super) struct Recomputation {
    /// By layer.
    segment: Vec<usize>,
    is_local: Vec<bool>,
    is_again: Vec<bool>,
    is_checkpoint: Vec<bool>,
    segments: usize,
}

impl Recomputation {
    /// Without checkpoints all activations are kept.
    pub(super) fn new(network: &LayerGraph, placement: &Placement, checkpoints: &[LayerId]) -> Self {
        let layers = network.len();
        let mut found = Self {
            segment: vec![0; layers],
            is_local: vec![false; layers],
            is_again: vec![false; layers],
            is_checkpoint: vec![false; layers],
            segments: 1,
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
        found.segments = segment + 1;
        let needs_gradient = network.needs_gradient();
        for &id in placement.order().iter().rev() {
            let consumers = network.consumers(id);
            let is_beside = |consumer: LayerId| {
                found.segment[consumer.index()] == found.segment[id.index()]
                    && placement.ranks(consumer) == placement.ranks(id)
            };
            let is_local =
                is_read_once(network, id) && consumers.iter().all(|&(consumer, _)| is_beside(consumer));
            let is_needed = backward_reads(network, id, &needs_gradient).output
                || consumers.iter().any(|&(consumer, _)| {
                    found.is_again[consumer.index()]
                        || backward_reads(network, consumer, &needs_gradient).input
                });
            found.is_local[id.index()] = is_local;
            found.is_again[id.index()] = is_local && is_needed && found.segment[id.index()] < segment;
        }
        found
    }

    /// Where the backward pass comes to a layer: the layers that are computed again first, in the plan's order.
    pub(super) fn before_backward(&self, id: LayerId, order: &[LayerId]) -> Vec<LayerId> {
        if !self.is_checkpoint[id.index()] {
            return Vec::new();
        }
        let segment = self.segment[id.index()];
        let is_here =
            |other: &LayerId| self.is_again[other.index()] && self.segment[other.index()] == segment;
        order.iter().copied().filter(is_here).collect()
    }

    /// By segment: the layers whose outputs are local.
    pub(super) fn local(&self, network: &LayerGraph) -> Vec<Vec<LayerId>> {
        let mut local = vec![Vec::new(); self.segments];
        for (id, _) in network.layers().filter(|(id, _)| self.is_local[id.index()]) {
            local[self.segment[id.index()]].push(id);
        }
        local
    }
}

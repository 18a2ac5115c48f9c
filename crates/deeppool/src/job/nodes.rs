//! The mapping between a network's layers and the planner's nodes. A *placement* is the ranks of
//! each layer, how they divide its work, and the order of the layers, and an *arrangement* is the
//! same by node.

use burst_planner::{Arrangement, NodeId};
use layer_engine::Precision;
use layer_graph::{Division, Layer, LayerGraph, LayerId, NetworkSplits, Split};

use crate::Error;
use crate::program::Placement;

/// Minimum number of positions of the parts of a layer that may have different sizes. The planner
/// takes the time of the largest part for all, which is at most 1/16 longer.
const MIN_UNEVEN: usize = 16;

/// The mapping between the layers of a network and the nodes of its planning problem. Every layer
/// except the input is a node. Nodes are numbered from 0 in topological order.
#[derive(Debug, Clone)]
pub struct PlannerNodes<'n> {
    network: &'n LayerGraph,
    /// The layer of each node.
    layers: Vec<LayerId>,
    /// The divisions of each node, which are its splits in the planner; `None` if no layer may be
    /// split.
    divisions: Option<NodeDivisions<'n>>,
}

/// Divisions of the layers of a network that a planner chooses from.
#[derive(Debug, Clone)]
pub(super) struct NodeDivisions<'n> {
    pub(super) splits: NetworkSplits<'n>,
    /// By node and by the index of the split in the planner.
    pub(super) of_nodes: Vec<Vec<NodeDivision>>,
}

/// A division of a layer that a planner may choose.
#[derive(Debug, Clone)]
pub(super) struct NodeDivision {
    pub(super) division: Division,
    /// The first part of the layer: no other one is larger.
    pub(super) part: Layer,
}

impl<'n> PlannerNodes<'n> {
    /// Creates the mapping for a network. O(layers).
    #[must_use]
    pub fn new(network: &'n LayerGraph) -> Self {
        Self { network, layers: network.computing_layers().map(|(id, _)| id).collect(), divisions: None }
    }

    /// Lets layers be split in the given ways into the given numbers of parts. All parts of a layer
    /// have the same size, but for parts of at least 16 positions. Other divisions are
    /// left out, and so are those of layers that would read some units of an input of the network
    /// and, in [`Precision::Bf16`], those of tensors into ranges of an odd number of elements.
    #[must_use]
    pub fn with_splits(mut self, kinds: &[Split], parts: &[usize], precision: Precision) -> Self {
        let splits = NetworkSplits::new(self.network);
        let of_node = |&id: &LayerId| -> Vec<NodeDivision> {
            let is_possible = |split: Split| kinds.contains(&split) && !splits.divides_input(id, split);
            let possible = splits.splits(id).into_iter().filter(|&split| is_possible(split));
            let in_parts = |split: Split| {
                let count = splits.max_parts(id, split);
                // The network's inputs and losses do not move.
                let moves =
                    |id: &LayerId| !self.network.is_input(*id) && !self.network.layer(*id).kind().is_loss();
                let ids = || self.network.producers(id).into_iter().chain([id]).filter(moves);
                let tensors = || ids().map(|id| splits.view(id));
                // Two elements of 16 bits move as a scalar: a pair of units, if a unit is odd.
                let is_odd = precision == Precision::Bf16 && tensors().any(|view| view.inner % 2 == 1);
                let is_possible =
                    !is_odd || split != Split::Positions || tensors().all(|view| view.units % 2 == 0);
                let unit = if is_odd && split != Split::Positions { 2 } else { 1 };
                let is_even = move |parts: usize| match split {
                    Split::Copies => true,
                    Split::Positions if parts * MIN_UNEVEN <= count => true,
                    _ => count % (unit * parts) == 0,
                };
                let is_allowed =
                    move |&parts: &usize| is_possible && parts > 1 && parts <= count && is_even(parts);
                parts.iter().copied().filter(is_allowed).map(move |parts| Division { split, parts })
            };
            let with_part = |division: Division| {
                Some(NodeDivision { division, part: splits.part(id, division, 0).ok()?.layer })
            };
            possible.flat_map(in_parts).filter_map(with_part).collect()
        };
        let of_nodes = self.layers.iter().map(of_node).collect();
        self.divisions = Some(NodeDivisions { splits, of_nodes });
        self.align_shared_parameters();
        self
    }

    /// Keeps those divisions of layers with the same parameters in which all have the same parts of
    /// them, at the same indices: an embedding by features with a linear layer by inputs.
    fn align_shared_parameters(&mut self) {
        let Some(NodeDivisions { splits, of_nodes }) = &mut self.divisions else { return };
        for (owner, &id) in self.layers.iter().enumerate() {
            let users: Vec<LayerId> = self.network.parameter_users(id);
            if users.len() < 2 {
                continue;
            }
            let nodes: Vec<usize> =
                users.iter().filter_map(|user| self.layers.iter().position(|layer| layer == user)).collect();
            let aligned: Vec<Vec<NodeDivision>> = of_nodes[owner]
                .iter()
                .filter_map(|own| {
                    let of_user = |&node: &usize| {
                        let is_same = |of: &&NodeDivision| {
                            let user = (self.layers[node], of.division);
                            splits.hold_same_parameters([(id, own.division), user])
                        };
                        if node == owner {
                            Some(own.clone())
                        } else {
                            of_nodes[node].iter().find(is_same).cloned()
                        }
                    };
                    nodes.iter().map(of_user).collect()
                })
                .collect();
            for (place, &node) in nodes.iter().enumerate() {
                of_nodes[node] = aligned.iter().map(|of_users| of_users[place].clone()).collect();
            }
        }
    }

    /// Returns the divisions of a node; empty if the layer may not be split.
    fn divisions(&self, node: NodeId) -> &[NodeDivision] {
        self.divisions.as_ref().map_or(&[], |divisions| &divisions.of_nodes[node.0])
    }

    /// Returns the divisions of all nodes; `None` if no layer may be split.
    pub(super) fn all_divisions(&self) -> Option<&NodeDivisions<'n>> {
        self.divisions.as_ref()
    }

    /// The network.
    pub(super) fn network(&self) -> &'n LayerGraph {
        self.network
    }

    /// The layer of each node, by node.
    #[must_use]
    pub fn layers(&self) -> &[LayerId] {
        &self.layers
    }

    /// Returns the layer of a node.
    #[must_use]
    pub fn layer(&self, node: NodeId) -> LayerId {
        self.layers[node.0]
    }

    /// Returns the node of a layer, which must not be an input layer.
    #[must_use]
    pub fn node(&self, layer: LayerId) -> NodeId {
        debug_assert!(!self.network.is_input(layer), "an input layer is no node");
        NodeId(layer.index() - self.network.inputs().len())
    }

    /// Converts a placement to an arrangement of the planner.
    ///
    /// # Errors
    /// [`Error::Placement`] if a layer is divided in another way than those that the planner may
    /// choose.
    pub fn arrangement(&self, placement: &Placement) -> Result<Arrangement, Error> {
        let ranks = self.layers.iter().map(|&layer| placement.ranks(layer).to_vec()).collect();
        let order = placement.order().iter().map(|&layer| self.node(layer).0).collect();
        let mut arrangement = Arrangement::new(ranks, order);
        for (index, &layer) in self.layers.iter().enumerate() {
            let division = placement.division(layer);
            if division.is_whole() {
                continue;
            }
            let split = self.divisions(NodeId(index)).iter().position(|other| other.division == division);
            arrangement.splits[index] = Some(split.ok_or_else(|| {
                let (name, Division { split, parts }) = (self.network.layer(layer).name(), division);
                let label = split.label();
                Error::Placement(format!("layer `{name}` is not to be split by {label} into {parts} parts"))
            })?);
        }
        Ok(arrangement)
    }

    /// Converts an arrangement to a placement on the ranks `0..world`.
    ///
    /// # Errors
    /// [`Error::Placement`] if the arrangement is for another network, uses an unknown rank or an
    /// unknown split, or has an order that is not topological.
    pub fn placement(&self, world: usize, arrangement: &Arrangement) -> Result<Placement, Error> {
        let order = arrangement.order.iter().map(|&node| self.layer(NodeId(node))).collect();
        let placement = Placement::new(self.network, world, arrangement.ranks.clone())?
            .with_order(self.network, order)?;
        if !arrangement.is_split() {
            return Ok(placement);
        }
        let division = |(node, &split): (usize, &Option<usize>)| {
            let division = self.divisions(NodeId(node)).get(split?);
            let unknown = || Error::Placement(format!("node {node} has no such split"));
            Some(division.map(|of| (self.layer(NodeId(node)), of.division)).ok_or_else(unknown))
        };
        let divisions = arrangement.splits.iter().enumerate().filter_map(division);
        placement.with_divisions(self.network, divisions.collect::<Result<Vec<_>, Error>>()?)
    }
}

//! The mapping between a network's layers and the planner's nodes.

use burst_planner::{Arrangement, NodeId};
use layer_graph::{LayerGraph, LayerId};

use crate::Error;
use crate::program::Placement;

/// The mapping between the layers of a network and the nodes of its planning problem. All layers
/// except the input are nodes, in topological order.
#[derive(Debug, Clone)]
pub struct PlannerNodes<'n> {
    network: &'n LayerGraph,
    /// The layer of each node.
    layers: Vec<LayerId>,
}

impl<'n> PlannerNodes<'n> {
    /// Creates the mapping for a network. O(layers).
    #[must_use]
    pub fn new(network: &'n LayerGraph) -> Self {
        Self { network, layers: network.layers().skip(1).map(|(id, _)| id).collect() }
    }

    /// The layers that are nodes, by node.
    #[must_use]
    pub fn layers(&self) -> &[LayerId] {
        &self.layers
    }

    /// Returns the layer of a node.
    #[must_use]
    pub fn layer(&self, node: NodeId) -> LayerId {
        self.layers[node.0]
    }

    /// Returns the node of a layer, which must not be the input layer.
    #[must_use]
    pub fn node(&self, layer: LayerId) -> NodeId {
        debug_assert!(layer != self.network.input(), "the input layer is no node");
        NodeId(layer.index() - 1)
    }

    /// Returns a placement as the planner's arrangement.
    #[must_use]
    pub fn arrangement(&self, placement: &Placement) -> Arrangement {
        Arrangement {
            ranks: self.layers.iter().map(|&layer| placement.ranks(layer).to_vec()).collect(),
            order: placement.order().iter().map(|&layer| self.node(layer).0).collect(),
        }
    }

    /// Returns an arrangement as a placement on ranks `0..world`.
    ///
    /// # Errors
    /// [`Error::Placement`] if the arrangement is for another network, uses an unknown rank, or has
    /// an order that is not topological.
    pub fn placement(&self, world: usize, arrangement: &Arrangement) -> Result<Placement, Error> {
        let order = arrangement.order.iter().map(|&node| self.layer(NodeId(node))).collect();
        Placement::new(self.network, world, arrangement.ranks.clone())?.with_order(self.network, order)
    }
}

//! The mapping between a network's layers and the planner's nodes. A *placement* is the ranks of
//! each layer and the order of the layers, and an *arrangement* is the same by node.

use burst_planner::{Arrangement, NodeId};
use layer_graph::{LayerGraph, LayerId};

use crate::Error;
use crate::program::Placement;

/// The mapping between the layers of a network and the nodes of its planning problem. Every layer
/// except the input is a node. Nodes are numbered from 0 in topological order.
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

    /// Returns the node of a layer, which must not be the input layer.
    #[must_use]
    pub fn node(&self, layer: LayerId) -> NodeId {
        debug_assert!(layer != self.network.input(), "the input layer is no node");
        NodeId(layer.index() - 1)
    }

    /// Converts a placement to an arrangement of the planner.
    #[must_use]
    pub fn arrangement(&self, placement: &Placement) -> Arrangement {
        let ranks = self.layers.iter().map(|&layer| placement.ranks(layer).to_vec()).collect();
        Arrangement::new(ranks, placement.order().iter().map(|&layer| self.node(layer).0).collect())
    }

    /// Converts an arrangement to a placement on the ranks `0..world`.
    ///
    /// # Errors
    /// [`Error::Placement`] if the arrangement is for another network, uses an unknown rank, splits
    /// a node, or has an order that is not topological.
    pub fn placement(&self, world: usize, arrangement: &Arrangement) -> Result<Placement, Error> {
        if arrangement.is_split() {
            return Err(Error::Placement("it splits nodes, and the nodes of a job have no splits".into()));
        }
        let order = arrangement.order.iter().map(|&node| self.layer(NodeId(node))).collect();
        Placement::new(self.network, world, arrangement.ranks.clone())?.with_order(self.network, order)
    }
}

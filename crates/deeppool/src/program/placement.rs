//! Placements: the ranks of each layer of a network and the order of the layers.

use layer_graph::{LayerGraph, LayerId};

use crate::Error;

/// The ranks of each layer of a network, and the order in which each rank runs its layers. It is
/// the part of a plan that lowering needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    world: usize,
    /// The ranks of each layer, by layer id; empty for the input layer.
    ranks: Vec<Vec<usize>>,
    /// All layers except the input.
    order: Vec<LayerId>,
}

impl Placement {
    /// Creates a placement on the ranks `0..world`. `ranks` are the lists of ranks of all layers
    /// except the input, in topological order, which is also the order in which the layers run. The
    /// order of a list is that of the samples: its first rank has the first ones.
    ///
    /// # Errors
    /// [`Error::Placement`] if a layer has no ranks, a rank that is not below `world`, or one
    /// twice, or if the number of lists is not the number of layers.
    pub fn new(network: &LayerGraph, world: usize, ranks: Vec<Vec<usize>>) -> Result<Self, Error> {
        let layers = network.len() - 1;
        if ranks.len() != layers {
            let problem = format!("it places {} layers, but `{}` has {layers}", ranks.len(), network.name());
            return Err(Error::Placement(problem));
        }
        for ((_, layer), ranks) in network.layers().skip(1).zip(&ranks) {
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if ranks.is_empty() || sorted.len() != ranks.len() || sorted.last().is_some_and(|&r| r >= world) {
                let problem =
                    format!("layer `{}` needs different ranks below {world}, got {ranks:?}", layer.name());
                return Err(Error::Placement(problem));
            }
        }
        let ranks = std::iter::once(Vec::new()).chain(ranks).collect();
        let order = network.layers().skip(1).map(|(id, _)| id).collect();
        Ok(Self { world, ranks, order })
    }

    /// Returns the same ranks with another order of all layers except the input. Each rank runs the
    /// forward steps of its layers in this order, the backward steps in reverse, and communicates
    /// in the order in which it computes.
    ///
    /// The order decides which of several branches runs first. It does not change the result of
    /// training.
    ///
    /// # Errors
    /// [`Error::Placement`] if a layer is missing or repeated, or comes before one of its inputs or
    /// before the owner of its parameters.
    pub fn with_order(mut self, network: &LayerGraph, order: Vec<LayerId>) -> Result<Self, Error> {
        let mut is_placed = vec![false; network.len()];
        is_placed[network.input().index()] = true;
        for &id in &order {
            let wrong = |problem: String| Err(Error::Placement(format!("the order of the layers {problem}")));
            let Some(before) = is_placed.get(id.index()) else {
                return wrong(format!(
                    "has a layer #{}, which `{}` does not have",
                    id.index(),
                    network.name()
                ));
            };
            let name = network.layer(id).name();
            if *before {
                return wrong(format!("has `{name}` twice, or it is the input"));
            }
            let owner = network.parameter_owner(id);
            let mut needs = network.producers(id);
            needs.extend((owner != id).then_some(owner));
            if let Some(missing) = needs.into_iter().find(|needed| !is_placed[needed.index()]) {
                return wrong(format!("has `{name}` before `{}`", network.layer(missing).name()));
            }
            is_placed[id.index()] = true;
        }
        if let Some(missing) = is_placed.iter().position(|placed| !placed) {
            let name = network.layers().nth(missing).map_or("", |(_, layer)| layer.name());
            return Err(Error::Placement(format!("the order of the layers lacks `{name}`")));
        }
        self.order = order;
        Ok(self)
    }

    /// Creates a placement of each layer on the first ranks of `0..world`. `gpus` are the GPU
    /// counts of all layers except the input, in topological order.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn first_ranks(network: &LayerGraph, world: usize, gpus: &[usize]) -> Result<Self, Error> {
        Self::new(network, world, gpus.iter().map(|&count| (0..count).collect()).collect())
    }

    /// Creates a placement of all layers on one rank.
    ///
    /// # Errors
    /// Never for a network with at least one layer besides the input.
    pub fn single(network: &LayerGraph) -> Result<Self, Error> {
        Self::first_ranks(network, 1, &vec![1; network.len() - 1])
    }

    /// Number of ranks, idle ones included.
    #[must_use]
    pub fn world(&self) -> usize {
        self.world
    }

    /// Returns all layers except the input, in the order in which they run.
    #[must_use]
    pub fn order(&self) -> &[LayerId] {
        &self.order
    }

    /// Returns the ranks of a layer, in the order of their samples; empty for the input layer.
    #[must_use]
    pub fn ranks(&self, layer: LayerId) -> &[usize] {
        &self.ranks[layer.index()]
    }

    /// Returns the ranks that hold a layer's own parameters: those of all layers that use them. If
    /// all these layers have the same list of ranks, it is that list; otherwise it is in ascending
    /// order, so that equal sets are equal lists. Empty if the layer owns no parameters.
    #[must_use]
    pub fn parameter_ranks(&self, network: &LayerGraph, layer: LayerId) -> Vec<usize> {
        if network.own_parameter_count(layer) == 0 {
            return Vec::new();
        }
        let users = network.parameter_users(layer);
        let own = self.ranks(layer);
        if users.iter().all(|&user| self.ranks(user) == own) {
            return own.to_vec();
        }
        let mut all: Vec<usize> = users.iter().flat_map(|&user| self.ranks(user)).copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

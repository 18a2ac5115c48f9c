//! Placements: the ranks of each layer of a network, how they divide its work, and the order of the
//! layers.

use std::collections::BTreeMap;
use std::sync::Arc;

use layer_graph::{Division, LayerGraph, LayerId, LayerPart, NetworkSplits, SplitValues, Values};

use crate::Error;

/// The ranks of each layer of a network, how they divide its work, and the order in which each rank
/// runs its layers. It is the part of a plan that lowering needs.
///
/// The ranks of a layer divide the samples of the batch. If the layer is
/// [split](Self::with_divisions) into parts, consecutive ranks have the same samples, and each of
/// them runs another part of the layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    world: usize,
    /// The ranks of each layer, by layer id; empty for the input layer.
    ranks: Vec<Vec<usize>>,
    /// The divisions of the layers that are split.
    divisions: BTreeMap<LayerId, Division>,
    /// All layers except the input.
    order: Vec<LayerId>,
}

impl Placement {
    /// Creates a placement on the ranks `0..world`. `ranks` are the lists of ranks of all layers
    /// except the inputs, in topological order, which is also the order in which the layers run.
    /// The order of a list is that of the samples: its first rank has the first ones.
    ///
    /// # Errors
    /// [`Error::Placement`] if a layer has no ranks, a rank that is not below `world`, or one
    /// twice, or if the number of lists is not the number of layers.
    pub fn new(network: &LayerGraph, world: usize, ranks: Vec<Vec<usize>>) -> Result<Self, Error> {
        let layers = network.computing_layers().len();
        if ranks.len() != layers {
            let problem = format!("it places {} layers, but `{}` has {layers}", ranks.len(), network.name());
            return Err(Error::Placement(problem));
        }
        for ((_, layer), ranks) in network.computing_layers().zip(&ranks) {
            let mut sorted = ranks.clone();
            sorted.sort_unstable();
            sorted.dedup();
            if ranks.is_empty() || sorted.len() != ranks.len() || sorted.last().is_some_and(|&r| r >= world) {
                let problem =
                    format!("layer `{}` needs different ranks below {world}, got {ranks:?}", layer.name());
                return Err(Error::Placement(problem));
            }
        }
        let ranks = network.inputs().map(|_| Vec::new()).chain(ranks).collect();
        let order = network.computing_layers().map(|(id, _)| id).collect();
        Ok(Self { world, ranks, divisions: BTreeMap::new(), order })
    }

    /// Returns the same ranks with another order of all layers except the inputs. Each rank runs
    /// the forward steps of its layers in this order, the backward steps in reverse, and
    /// communicates in the order in which it computes.
    ///
    /// The order decides which of several branches runs first. It does not change the result of
    /// training.
    ///
    /// # Errors
    /// [`Error::Placement`] if a layer is missing or repeated, or comes before one of its inputs or
    /// before the owner of its parameters.
    pub fn with_order(mut self, network: &LayerGraph, order: Vec<LayerId>) -> Result<Self, Error> {
        let mut is_placed = vec![false; network.len()];
        network.inputs().for_each(|input| is_placed[input.index()] = true);
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
                return wrong(format!("has `{name}` twice, or it is an input"));
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

    /// Splits layers into parts. The ranks of a layer with `parts` parts are as many ranges of
    /// samples as `parts` divides their number into: the first `parts` ranks have the first range
    /// and its parts in their order, the next ones the second range.
    ///
    /// Splits do not change the result of training, up to rounding.
    ///
    /// ```
    /// use deeppool::layer_graph::{Division, Split, zoo};
    /// use deeppool::program::Placement;
    ///
    /// let network = zoo::model("digits-cnn")?;
    /// let head = network.find("fc1").expect("the network has this layer");
    /// let counts = vec![2; network.computing_layers().len()];
    /// let placement = Placement::first_ranks(&network, 2, &counts)?;
    /// let by_features = Division { split: Split::Features, parts: 2 };
    /// let split = placement.with_divisions(&network, [(head, by_features)])?;
    /// assert_eq!(split.division(head).parts, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Graph`] if a layer cannot be split in this way. [`Error::Placement`] if its number
    /// of ranks is not a multiple of the parts, if layers that share parameters have different
    /// parts of them or run on different ranks, or if a layer would read some units of an input of
    /// the network.
    pub fn with_divisions(
        mut self,
        network: &LayerGraph,
        divisions: impl IntoIterator<Item = (LayerId, Division)>,
    ) -> Result<Self, Error> {
        let splits = NetworkSplits::new(network);
        for (id, division) in divisions {
            let name = network.layer(id).name();
            let (ranks, parts) = (self.ranks(id).len(), division.parts);
            splits.part(id, division, 0)?;
            if ranks % parts != 0 {
                let problem =
                    format!("layer `{name}` has {parts} parts, which do not divide its {ranks} ranks");
                return Err(Error::Placement(problem));
            }
            if !division.is_whole() && splits.divides_input(id, division.split) {
                let problem = format!(
                    "layer `{name}` reads an input of the network, which is not divided by {}",
                    division.split.label()
                );
                return Err(Error::Placement(problem));
            }
            if division.is_whole() {
                self.divisions.remove(&id);
            } else {
                self.divisions.insert(id, division);
            }
        }
        self.check_shared_parameters(network, &splits)?;
        Ok(self)
    }

    /// Checks that split layers have the same parts of the parameters that they share.
    fn check_shared_parameters(&self, network: &LayerGraph, splits: &NetworkSplits<'_>) -> Result<(), Error> {
        for &id in self.divisions.keys() {
            let owner = network.parameter_owner(id);
            for user in network.parameter_users(owner) {
                let is_same = self.ranks(id) == self.ranks(user)
                    && splits.hold_same_parameters([id, user].map(|id| (id, self.division(id))));
                if !is_same {
                    let [id, user] = [id, user].map(|id| network.layer(id).name());
                    let problem = format!(
                        "layers `{id}` and `{user}` share parameters: give them the same ranks, and the same \
                         parts of the parameters and their gradients"
                    );
                    return Err(Error::Placement(problem));
                }
            }
        }
        Ok(())
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
        Self::first_ranks(network, 1, &vec![1; network.computing_layers().len()])
    }

    /// Returns the same placement with rank i moved to the i-th of `ranks`.
    ///
    /// # Errors
    /// [`Error::Placement`] if there are fewer ranks than [`world`](Self::world), or one is given
    /// twice.
    pub(crate) fn on_ranks(mut self, ranks: &[usize]) -> Result<Self, Error> {
        let mut sorted = ranks.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != ranks.len() || ranks.len() < self.world {
            let world = self.world;
            return Err(Error::Placement(format!("it needs {world} different ranks, got {ranks:?}")));
        }
        for rank in self.ranks.iter_mut().flatten() {
            *rank = ranks[*rank];
        }
        self.world = sorted.last().map_or(0, |last| last + 1);
        Ok(self)
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

    /// Returns the ranks of a layer, in the order of their samples, and of their parts of the
    /// layer; empty for the input layer.
    #[must_use]
    pub fn ranks(&self, layer: LayerId) -> &[usize] {
        &self.ranks[layer.index()]
    }

    /// Returns how the ranks of a layer divide its work on a sample: [`Division::WHOLE`] if it is
    /// not split.
    #[must_use]
    pub fn division(&self, layer: LayerId) -> Division {
        self.divisions.get(&layer).copied().unwrap_or_default()
    }

    /// Returns how the parts of a layer hold its tensors. `splits` are those of the network, if any
    /// layer is split.
    pub(super) fn values(&self, splits: Option<&NetworkSplits<'_>>, layer: LayerId) -> SplitValues {
        let division = self.division(layer);
        let splits = splits.filter(|_| !division.is_whole());
        splits.map_or(SplitValues::WHOLE, |splits| splits.values(layer, division.split))
    }

    /// Returns the number of groups of ranks that sum the gradients of a layer's parameters, or the
    /// metrics of a loss: one for each part of the parameters. `splits` are those of the network,
    /// if any layer is split.
    pub(super) fn sum_groups(&self, splits: Option<&NetworkSplits<'_>>, layer: LayerId) -> usize {
        let is_sum = self.values(splits, layer).parameter_gradient == Values::Addends;
        if is_sum { 1 } else { self.division(layer).parts }
    }

    /// Returns the parts of all split layers, by layer. `splits` are those of the network.
    ///
    /// # Errors
    /// [`Error::Graph`] if a layer of another network is split.
    pub fn parts(&self, splits: &NetworkSplits<'_>) -> Result<BTreeMap<LayerId, Vec<Arc<LayerPart>>>, Error> {
        let of_layer = |(&id, &division): (&LayerId, &Division)| {
            let parts = (0..division.parts).map(|index| Ok(Arc::new(splits.part(id, division, index)?)));
            Ok((id, parts.collect::<Result<_, Error>>()?))
        };
        self.divisions.iter().map(of_layer).collect()
    }

    /// Returns the number of ranges of samples of a layer: that of its ranks, unless it is split.
    #[must_use]
    pub fn sample_ranges(&self, layer: LayerId) -> usize {
        self.ranks(layer).len() / self.division(layer).parts
    }

    /// Returns whether any layer is split.
    #[must_use]
    pub fn is_split(&self) -> bool {
        !self.divisions.is_empty()
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

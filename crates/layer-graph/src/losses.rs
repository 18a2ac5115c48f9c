//! The losses of a network and their labels, and the layers that no loss depends on.
//!
//! The loss of a network is the weighted sum of those of its loss layers. Labels of a sample are
//! those of all loss layers, one after another in the network's order.

use std::collections::HashMap;
use std::ops::Range;

use crate::{GraphError, LayerGraph, LayerId};

impl LayerGraph {
    /// Returns the ids of the loss layers, in topological order.
    ///
    /// ```
    /// use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
    ///
    /// let mut network = LayerGraph::new("two heads", Shape::features(4))?;
    /// let scores = network.add("fc", Linear::new(2), [network.input()])?;
    /// let main = network.add("loss", LayerKind::CROSS_ENTROPY, [scores])?;
    /// let scores = network.add("aux", Linear::new(3), [network.input()])?;
    /// let other = network.add("aux_loss", LayerKind::CROSS_ENTROPY, [scores])?;
    /// network.set_loss_weight(other, 0.4)?;
    /// assert_eq!(network.losses().collect::<Vec<_>>(), [main, other]);
    /// assert_eq!(network.loss_labels(other), 1..2);
    /// # Ok::<(), layer_graph::GraphError>(())
    /// ```
    #[must_use]
    pub fn losses(&self) -> impl DoubleEndedIterator<Item = LayerId> {
        self.layers().filter(|(_, layer)| layer.kind().is_loss()).map(|(id, _)| id)
    }

    /// Sets the factor of a loss layer in the sum of losses: a positive number, 1 by default.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the layer is no loss, or the weight is not positive and normal in
    /// single precision.
    ///
    /// # Panics
    /// If the layer is not in the network.
    pub fn set_loss_weight(&mut self, id: LayerId, weight: f64) -> Result<(), GraphError> {
        let layer = self.layer_mut(id);
        let fail = |problem| Err(GraphError::Shape { layer: layer.name.clone(), problem });
        if !layer.kind.is_loss() {
            return fail("only a loss has a weight in the sum of losses".into());
        }
        // Gradients are scaled by it in single precision.
        if weight < 0.0 || !(weight as f32).is_normal() {
            return fail(format!("weight {weight} of a loss is not positive, or too small or large"));
        }
        layer.loss_weight = weight;
        Ok(())
    }

    /// Returns the labels of a loss layer among those of a sample. Empty for other layers.
    #[must_use]
    pub fn loss_labels(&self, id: LayerId) -> Range<usize> {
        let count = |id: LayerId| self.layer(id).label_count();
        let start = self.losses().take_while(|&loss| loss < id).map(count).sum();
        start..start + count(id)
    }

    /// Returns the number of labels of a sample: of all loss layers together.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.losses().map(|id| self.layer(id).label_count()).sum()
    }

    /// Returns the layers that training does not need, such as a pooled state beside the scores:
    /// those that no loss depends on, without the inputs and the layers that depend on a loss.
    /// Empty if there is no loss.
    ///
    /// Complexity: O(layers + edges).
    #[must_use]
    pub fn unused_layers(&self) -> Vec<LayerId> {
        let mut is_used = vec![false; self.len()];
        for (id, layer) in self.layers().rev() {
            if is_used[id.index()] || layer.kind().is_loss() {
                is_used[id.index()] = true;
                self.producers(id).into_iter().for_each(|producer| is_used[producer.index()] = true);
            }
        }
        let mut is_after_loss = vec![false; self.len()];
        for (id, layer) in self.layers() {
            let mut producers = self.producers(id).into_iter();
            is_after_loss[id.index()] =
                layer.kind().is_loss() || producers.any(|producer| is_after_loss[producer.index()]);
        }
        if !is_after_loss.contains(&true) {
            return Vec::new();
        }
        let unused = |id: &LayerId| !is_used[id.index()] && !is_after_loss[id.index()];
        self.computing_layers().map(|(id, _)| id).filter(unused).collect()
    }

    /// Returns the network without its [unused layers](Self::unused_layers). If one of them owns
    /// parameters that other layers use, the first of these becomes the owner.
    ///
    /// ```
    /// use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
    ///
    /// let mut network = LayerGraph::new("network", Shape::features(4))?;
    /// let scores = network.add("fc", Linear::new(2), [network.input()])?;
    /// network.add("pooled", LayerKind::Tanh, [scores])?;
    /// network.add("loss", LayerKind::CROSS_ENTROPY, [scores])?;
    /// let trained = network.without_unused_layers()?;
    /// assert_eq!((trained.len(), trained.find("pooled")), (3, None));
    /// # Ok::<(), layer_graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    /// None for a network that could be built.
    pub fn without_unused_layers(&self) -> Result<Self, GraphError> {
        let unused = self.unused_layers();
        if unused.is_empty() {
            return Ok(self.clone());
        }
        let shape_of = |id: LayerId| self.layer(id).output_shape().clone();
        let mut network = Self::new(self.name(), shape_of(self.input()))?;
        let mut new_ids = HashMap::from([(self.input(), network.input())]);
        for id in self.inputs().skip(1) {
            new_ids.insert(id, network.add_input(self.layer(id).name(), shape_of(id))?);
        }
        let mut owners: HashMap<LayerId, LayerId> = HashMap::new();
        for (id, layer) in self.computing_layers().filter(|(id, _)| !unused.contains(id)) {
            let inputs = self.producers(id).into_iter().filter_map(|id| new_ids.get(&id).copied());
            let (inputs, kind) = (inputs.collect::<Vec<_>>(), layer.kind().clone());
            let owner = self.parameter_owner(id);
            let new_id = match owners.get(&owner) {
                Some(&owner) => network.add_tied(layer.name(), kind, inputs, owner)?,
                None => network.add(layer.name(), kind, inputs)?,
            };
            owners.entry(owner).or_insert(new_id);
            network.layer_mut(new_id).loss_weight = layer.loss_weight;
            new_ids.insert(id, new_id);
        }
        Ok(network)
    }
}

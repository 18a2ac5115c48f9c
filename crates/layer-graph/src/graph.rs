//! The layer graph: construction of a network layer by layer, and queries of its structure.

use std::collections::HashMap;
use std::ops::Range;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::infer::output_shape;
use crate::size::NetworkSize;
use crate::{GraphError, Layer, LayerKind, Opaque, Shape};

/// Identifier of a layer within one [`LayerGraph`]. Ids are consecutive from 0 (the first input
/// layer) in topological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(usize);

impl LayerId {
    /// Returns the position of the layer in [`LayerGraph::layers`], from 0.
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// A network: a directed acyclic graph of layers with checked shapes.
///
/// A layer takes its inputs only from layers added before it. The graph is therefore acyclic by
/// construction, and the order of insertion is a topological order.
#[derive(Debug, Clone)]
pub struct LayerGraph {
    name: String,
    /// Edges point from producer to consumer. The weight is the position among the consumer's
    /// inputs.
    graph: DiGraph<Layer, usize>,
    by_name: HashMap<String, LayerId>,
    /// For each layer added by `add_tied`, the layer that owns its parameters.
    owners: HashMap<LayerId, LayerId>,
    /// Number of input layers, which are the first ones.
    inputs: usize,
    /// Size of all layers.
    size: NetworkSize,
}

impl LayerGraph {
    /// Creates a network that holds only its first input layer, named `input`. `name` is the name
    /// of the network, and `input` the shape of this input for one sample.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the shape is empty, has a zero dimension or is too large.
    pub fn new(name: impl Into<String>, input: Shape) -> Result<Self, GraphError> {
        let mut network = Self {
            name: name.into(),
            graph: DiGraph::new(),
            by_name: HashMap::new(),
            owners: HashMap::new(),
            inputs: 0,
            size: NetworkSize::default(),
        };
        network.add_input("input", input)?;
        Ok(network)
    }

    /// Adds a further input layer and returns its id. A sample has a tensor for each input layer,
    /// such as the two sentences of a translation. All inputs are added before other layers.
    ///
    /// ```
    /// use layer_graph::{LayerGraph, LayerKind, Shape};
    ///
    /// let mut network = LayerGraph::new("pair", Shape::features(4))?;
    /// let other = network.add_input("other", Shape::features(4))?;
    /// network.add("sum", LayerKind::Add, [network.input(), other])?;
    /// assert_eq!(network.sample_elements(), 8);
    /// assert_eq!(network.input_elements(other), 4..8);
    /// # Ok::<(), layer_graph::GraphError>(())
    /// ```
    ///
    /// # Errors
    /// [`GraphError::DuplicateName`] if the name is in use. [`GraphError::Shape`] if the shape is
    /// empty, has a zero dimension or is too large, or if there are other layers already.
    pub fn add_input(&mut self, name: impl Into<String>, input: Shape) -> Result<LayerId, GraphError> {
        let name = name.into();
        if self.by_name.contains_key(&name) {
            return Err(GraphError::DuplicateName(name));
        }
        let fail = |problem| Err(GraphError::Shape { layer: name.clone(), problem });
        if !input.is_valid() {
            return fail(format!("input shape `{input}` is empty or too large"));
        }
        if self.inputs < self.len() {
            return fail("inputs are added before other layers".into());
        }
        let id = self.insert(Layer::new(name, LayerKind::Input, Vec::new(), input))?;
        self.inputs += 1;
        Ok(id)
    }

    /// Adds a layer and returns its id. `name` must be unique in the graph; `inputs` are the layers
    /// whose outputs it reads, in order.
    ///
    /// # Errors
    /// - [`GraphError::DuplicateName`] if the name is in use.
    /// - [`GraphError::UnknownInput`] if an input is not in this graph.
    /// - [`GraphError::InputCount`] or [`GraphError::Shape`] if the layer does not fit its inputs,
    ///   or the network becomes implausibly large.
    pub fn add(
        &mut self,
        name: impl Into<String>,
        kind: impl Into<LayerKind>,
        inputs: impl AsRef<[LayerId]>,
    ) -> Result<LayerId, GraphError> {
        let (name, kind, inputs) = (name.into(), kind.into(), inputs.as_ref());
        if self.by_name.contains_key(&name) {
            return Err(GraphError::DuplicateName(name));
        }
        let shapes = self.input_shapes(&name, inputs)?;
        let output = output_shape(&name, &kind, &shapes)?;
        let id = self.insert(Layer::new(name, kind, shapes, output))?;
        for (slot, input) in inputs.iter().enumerate() {
            self.graph.add_edge(NodeIndex::new(input.0), NodeIndex::new(id.0), slot);
        }
        Ok(id)
    }

    /// Adds a layer that uses the parameters of an earlier layer, the owner (weight tying), as the
    /// output layer of a language model uses those of its embedding.
    ///
    /// # Errors
    /// Those of [`add`](Self::add), [`GraphError::UnknownInput`] if `owner` is not in this graph,
    /// and [`GraphError::Tied`] if `owner` itself uses the parameters of another layer, the new
    /// layer has no parameters, or the dimensions of the parameters differ.
    pub fn add_tied(
        &mut self,
        name: impl Into<String>,
        kind: impl Into<LayerKind>,
        inputs: impl AsRef<[LayerId]>,
        owner: LayerId,
    ) -> Result<LayerId, GraphError> {
        let (name, kind, inputs) = (name.into(), kind.into(), inputs.as_ref());
        if owner.0 >= self.len() {
            return Err(GraphError::UnknownInput { layer: name, input: format!("#{}", owner.0) });
        }
        let tied = |problem: String, network: &Self| GraphError::Tied {
            layer: name.clone(),
            owner: network.layer(owner).name.clone(),
            problem,
        };
        if self.parameter_owner(owner) != owner {
            return Err(tied("which has no parameters of its own".into(), self));
        }
        let dims =
            |layer: &Layer| layer.parameters().into_iter().map(|tensor| tensor.dims).collect::<Vec<_>>();
        // Checked before the layer is added: on failure the network is unchanged.
        let shapes = self.input_shapes(&name, inputs)?;
        let output = output_shape(&name, &kind, &shapes)?;
        let layer = Layer::new(name.clone(), kind.clone(), shapes, output);
        let (wanted, there) = (dims(&layer), dims(self.layer(owner)));
        if wanted != there || wanted.is_empty() {
            return Err(tied(format!("whose dimensions are {there:?}, not {wanted:?}"), self));
        }
        let id = self.add(name, kind, inputs)?;
        self.owners.insert(id, owner);
        Ok(id)
    }

    /// Returns the output shapes of the given layers.
    fn input_shapes(&self, name: &str, inputs: &[LayerId]) -> Result<Vec<Shape>, GraphError> {
        if let Some(unknown) = inputs.iter().find(|id| id.0 >= self.len()) {
            return Err(GraphError::UnknownInput { layer: name.into(), input: format!("#{}", unknown.0) });
        }
        Ok(inputs.iter().map(|&id| self.layer(id).output.clone()).collect())
    }

    /// Adds a layer without edges.
    ///
    /// # Errors
    /// [`GraphError::Shape`] if the network becomes implausibly large; it is unchanged then.
    fn insert(&mut self, layer: Layer) -> Result<LayerId, GraphError> {
        self.size = self.size.with(&layer)?;
        let name = layer.name.clone();
        let id = LayerId(self.graph.add_node(layer).index());
        self.by_name.insert(name, id);
        Ok(id)
    }

    /// Returns the network's name, as given to [`new`](Self::new).
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the id of the first input layer.
    #[must_use]
    pub fn input(&self) -> LayerId {
        LayerId(0)
    }

    /// Returns the ids of the input layers: the first ones of the network.
    #[must_use]
    pub fn inputs(&self) -> impl DoubleEndedIterator<Item = LayerId> + ExactSizeIterator + use<> {
        (0..self.inputs).map(LayerId)
    }

    /// Returns whether a layer is an input layer, whose output is a part of the sample.
    #[must_use]
    pub fn is_input(&self, id: LayerId) -> bool {
        id.0 < self.inputs
    }

    /// Returns the elements of an input layer's output among those of a sample, which has the
    /// outputs of the input layers in order. Empty for other layers.
    #[must_use]
    pub fn input_elements(&self, id: LayerId) -> Range<usize> {
        let elements = |id: LayerId| self.layer(id).output.elements();
        let start = self.inputs().take_while(|&input| input < id).map(elements).sum();
        start..start + if self.is_input(id) { elements(id) } else { 0 }
    }

    /// Returns the number of elements of a sample: of the outputs of all input layers.
    #[must_use]
    pub fn sample_elements(&self) -> usize {
        self.inputs().map(|id| self.layer(id).output.elements()).sum()
    }

    /// Returns the shape of a sample: that of the only input, or a vector of the elements of all
    /// inputs.
    #[must_use]
    pub fn sample_shape(&self) -> Shape {
        match self.inputs {
            1 => self.layer(self.input()).output.clone(),
            _ => Shape::features(self.sample_elements()),
        }
    }

    /// Returns the number of layers, the input layers included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.graph.node_count()
    }

    /// Returns whether the graph holds only its input layers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == self.inputs
    }

    /// Returns the layer with this id.
    ///
    /// # Panics
    /// If the index of the id is not less than the number of layers.
    #[must_use]
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.graph[NodeIndex::new(id.0)]
    }

    /// Returns the layer with this id, to change what its shapes do not depend on.
    pub(crate) fn layer_mut(&mut self, id: LayerId) -> &mut Layer {
        &mut self.graph[NodeIndex::new(id.0)]
    }

    /// Returns all layers with their ids in topological order, the input layers first.
    #[must_use]
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (LayerId, &Layer)> + ExactSizeIterator {
        self.graph.node_indices().map(|node| (LayerId(node.index()), &self.graph[node]))
    }

    /// Returns all layers that compute something with their ids in topological order: all but the
    /// input layers.
    #[must_use]
    pub fn computing_layers(&self) -> impl DoubleEndedIterator<Item = (LayerId, &Layer)> + ExactSizeIterator {
        self.layers().skip(self.inputs)
    }

    /// Returns the id of the layer with the given name, or `None` if there is none.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<LayerId> {
        self.by_name.get(name).copied()
    }

    /// Returns the layers whose outputs a layer reads, in the order of its inputs.
    #[must_use]
    pub fn producers(&self, id: LayerId) -> Vec<LayerId> {
        let edges = self.graph.edges_directed(NodeIndex::new(id.0), Direction::Incoming);
        let mut slots: Vec<_> = edges.map(|edge| (*edge.weight(), LayerId(edge.source().index()))).collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, producer)| producer).collect()
    }

    /// Returns the layers that read a layer's output, in topological order, each with the position
    /// of that output among its inputs, from 0. A layer that reads the output twice appears twice.
    #[must_use]
    pub fn consumers(&self, id: LayerId) -> Vec<(LayerId, usize)> {
        let edges = self.graph.edges_directed(NodeIndex::new(id.0), Direction::Outgoing);
        let mut consumers: Vec<_> =
            edges.map(|edge| (LayerId(edge.target().index()), *edge.weight())).collect();
        consumers.sort_unstable();
        consumers
    }

    /// Returns the layer that owns the parameters of a layer: itself, unless it was added by
    /// [`add_tied`](Self::add_tied).
    #[must_use]
    pub fn parameter_owner(&self, id: LayerId) -> LayerId {
        self.owners.get(&id).copied().unwrap_or(id)
    }

    /// Returns the layers that use a layer's parameters, including itself, in topological order.
    /// Empty if the layer uses the parameters of another one.
    #[must_use]
    pub fn parameter_users(&self, id: LayerId) -> Vec<LayerId> {
        if self.owners.contains_key(&id) {
            return Vec::new();
        }
        let others = self.owners.iter().filter(|&(_, &owner)| owner == id).map(|(&user, _)| user);
        let mut users: Vec<LayerId> = others.chain([id]).collect();
        users.sort_unstable();
        users
    }

    /// Returns the number of learned parameters that a layer owns: 0 if it uses those of another
    /// layer.
    #[must_use]
    pub fn own_parameter_count(&self, id: LayerId) -> usize {
        if self.parameter_owner(id) == id { self.layer(id).parameter_count() } else { 0 }
    }

    /// Returns for each layer, by its index, whether the gradient of its output is needed: whether
    /// the layer or one of its ancestors has parameters.
    ///
    /// Complexity: O(layers + edges).
    ///
    /// ```
    /// use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
    ///
    /// let mut network = LayerGraph::new("network", Shape::features(4))?;
    /// let relu = network.add("relu", LayerKind::Relu, [network.input()])?;
    /// let scores = network.add("fc", Linear::new(2), [relu])?;
    /// network.add("loss", LayerKind::CROSS_ENTROPY, [scores])?;
    /// assert_eq!(network.needs_gradient(), [false, false, true, true]);
    /// # Ok::<(), layer_graph::GraphError>(())
    /// ```
    #[must_use]
    pub fn needs_gradient(&self) -> Vec<bool> {
        let mut needs = vec![false; self.len()];
        for (id, layer) in self.layers() {
            needs[id.0] =
                layer.parameter_count() > 0 || self.producers(id).iter().any(|producer| needs[producer.0]);
        }
        needs
    }

    /// Returns the opaque layers (known only by their cost) with their costs, in topological order.
    pub fn opaque_layers(&self) -> impl Iterator<Item = (&Layer, &Opaque)> {
        self.graph.node_weights().filter_map(|layer| match layer.kind() {
            LayerKind::Opaque(opaque) => Some((layer, opaque)),
            _ => None,
        })
    }

    /// Returns the underlying `petgraph` graph. Edges point from producer to consumer and have as
    /// weight the position among the consumer's inputs, from 0. A node has the index of its layer's
    /// id.
    #[must_use]
    pub fn as_petgraph(&self) -> &DiGraph<Layer, usize> {
        &self.graph
    }

    /// Returns the number of learned parameters (scalars). Shared parameters count once.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.layers().map(|(id, _)| self.own_parameter_count(id)).sum()
    }

    /// Returns the number of floating-point operations of one sample's forward pass. A multiply-add
    /// counts as two.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        self.graph.node_weights().map(Layer::forward_flops).sum()
    }

    /// Returns the number of floating-point operations of one sample's backward pass: the gradients
    /// of inputs and of parameters. A multiply-add counts as two.
    #[must_use]
    pub fn backward_flops(&self) -> u64 {
        self.graph.node_weights().map(Layer::backward_flops).sum()
    }

    /// Returns the bytes of one sample's activations in single precision, summed over the outputs
    /// of all layers, the input layers included.
    #[must_use]
    pub fn activation_bytes(&self) -> u64 {
        self.graph.node_weights().map(Layer::output_bytes).sum()
    }
}

impl PartialEq for LayerGraph {
    /// Compares name, layers in order, edges and shared parameters.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.len() == other.len()
            && self.inputs == other.inputs
            && self
                .layers()
                .zip(other.layers())
                .all(|((a_id, a), (b_id, b))| a == b && self.producers(a_id) == other.producers(b_id))
            && self.owners == other.owners
    }
}

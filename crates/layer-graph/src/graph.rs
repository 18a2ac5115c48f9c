use std::collections::HashMap;

use petgraph::Direction;
use petgraph::graph::{DiGraph, NodeIndex};
use petgraph::visit::EdgeRef;

use crate::infer::output_shape;
use crate::{GraphError, Layer, LayerKind, Opaque, Shape};

/// Identifies a layer of one [`LayerGraph`]. Ids count up from 0, the input layer, in topological order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LayerId(usize);

impl LayerId {
    /// The position of the layer in [`LayerGraph::layers`].
    #[must_use]
    pub fn index(self) -> usize {
        self.0
    }
}

/// A network: a directed acyclic graph of layers with checked shapes.
///
/// A layer can only take its inputs from layers that are already there, so the graph is acyclic by construction and
/// the order of addition is a topological order.
#[derive(Debug, Clone)]
pub struct LayerGraph {
    name: String,
    /// Edges point from producer to consumer and carry the position among the consumer's inputs.
    graph: DiGraph<Layer, usize>,
    by_name: HashMap<String, LayerId>,
    /// The layers that use another one's parameters.
    owners: HashMap<LayerId, LayerId>,
}

impl LayerGraph {
    /// A network that has nothing but its input layer, named `input`, with samples of this shape.
    ///
    /// # Errors
    /// [`GraphError::Shape`] when the shape is empty, has a zero in it, or is too large.
    pub fn new(name: impl Into<String>, input: Shape) -> Result<Self, GraphError> {
        if !input.is_valid() {
            let problem = format!("input shape `{input}` is empty or too large");
            return Err(GraphError::Shape { layer: "input".into(), problem });
        }
        let mut network = Self {
            name: name.into(),
            graph: DiGraph::new(),
            by_name: HashMap::new(),
            owners: HashMap::new(),
        };
        network.insert("input".into(), LayerKind::Input, Vec::new(), input);
        Ok(network)
    }

    /// Adds a layer that takes its inputs from these layers, in this order, and returns its id.
    ///
    /// # Errors
    /// When the name is taken, an input is not of this graph, or the layer does not fit the inputs' shapes.
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
        let id = self.insert(name, kind, shapes, output);
        for (slot, input) in inputs.iter().enumerate() {
            self.graph.add_edge(NodeIndex::new(input.0), NodeIndex::new(id.0), slot);
        }
        Ok(id)
    }

    /// Adds a layer that uses the parameters of an earlier one instead of its own, as a language model's last layer uses
    /// its first one's.
    ///
    /// # Errors
    /// As [`add`](Self::add), and [`GraphError::Tied`] when the owner has no parameters of the same dimensions, or none of its
    /// own.
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
        // Checked before the layer is added, so that a failure leaves the network unchanged.
        let shapes = self.input_shapes(&name, inputs)?;
        let output = output_shape(&name, &kind, &shapes)?;
        let layer = Layer { name: name.clone(), kind: kind.clone(), inputs: shapes, output };
        let (wanted, there) = (dims(&layer), dims(self.layer(owner)));
        if wanted != there || wanted.is_empty() {
            return Err(tied(format!("whose dimensions are {there:?}, not {wanted:?}"), self));
        }
        let id = self.add(name, kind, inputs)?;
        self.owners.insert(id, owner);
        Ok(id)
    }

    /// The shapes of these layers' outputs.
    fn input_shapes(&self, name: &str, inputs: &[LayerId]) -> Result<Vec<Shape>, GraphError> {
        if let Some(unknown) = inputs.iter().find(|id| id.0 >= self.len()) {
            return Err(GraphError::UnknownInput { layer: name.into(), input: format!("#{}", unknown.0) });
        }
        Ok(inputs.iter().map(|&id| self.layer(id).output.clone()).collect())
    }

    fn insert(&mut self, name: String, kind: LayerKind, inputs: Vec<Shape>, output: Shape) -> LayerId {
        let layer = Layer { name: name.clone(), kind, inputs, output };
        let id = LayerId(self.graph.add_node(layer).index());
        self.by_name.insert(name, id);
        id
    }

    /// The network's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The input layer.
    #[must_use]
    pub fn input(&self) -> LayerId {
        LayerId(0)
    }

    /// Number of layers, the input layer included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.graph.node_count()
    }

    /// Whether there is no layer but the input.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 1
    }

    /// The layer with this id.
    ///
    /// # Panics
    /// When the id is of another, larger graph.
    #[must_use]
    pub fn layer(&self, id: LayerId) -> &Layer {
        &self.graph[NodeIndex::new(id.0)]
    }

    /// All layers in topological order, the input layer first.
    #[must_use]
    pub fn layers(&self) -> impl DoubleEndedIterator<Item = (LayerId, &Layer)> + ExactSizeIterator {
        self.graph.node_indices().map(|node| (LayerId(node.index()), &self.graph[node]))
    }

    /// The layer of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<LayerId> {
        self.by_name.get(name).copied()
    }

    /// The layers that a layer takes its inputs from, in the order of its inputs.
    #[must_use]
    pub fn producers(&self, id: LayerId) -> Vec<LayerId> {
        let edges = self.graph.edges_directed(NodeIndex::new(id.0), Direction::Incoming);
        let mut slots: Vec<_> = edges.map(|edge| (*edge.weight(), LayerId(edge.source().index()))).collect();
        slots.sort_unstable();
        slots.into_iter().map(|(_, producer)| producer).collect()
    }

    /// The layers that use a layer's output, each with the position among its inputs, in topological order.
    #[must_use]
    pub fn consumers(&self, id: LayerId) -> Vec<(LayerId, usize)> {
        let edges = self.graph.edges_directed(NodeIndex::new(id.0), Direction::Outgoing);
        let mut consumers: Vec<_> =
            edges.map(|edge| (LayerId(edge.target().index()), *edge.weight())).collect();
        consumers.sort_unstable();
        consumers
    }

    /// The layer whose parameters a layer uses: itself, unless it was added by [`add_tied`](Self::add_tied).
    #[must_use]
    pub fn parameter_owner(&self, id: LayerId) -> LayerId {
        self.owners.get(&id).copied().unwrap_or(id)
    }

    /// The layers that use a layer's parameters, itself first; none where it uses another one's.
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

    /// Number of learned parameters that a layer owns: none where it uses another one's.
    #[must_use]
    pub fn own_parameter_count(&self, id: LayerId) -> usize {
        if self.parameter_owner(id) == id { self.layer(id).parameter_count() } else { 0 }
    }

    /// By layer: whether anything learns from the gradient of its output, because the layer or one before it has
    /// parameters. O(layers + edges).
    ///
    /// ```
    /// use layer_graph::{LayerGraph, LayerKind, Linear, Shape};
    ///
    /// let mut network = LayerGraph::new("network", Shape::features(4))?;
    /// let relu = network.add("relu", LayerKind::Relu, [network.input()])?;
    /// let scores = network.add("fc", Linear::new(2), [relu])?;
    /// network.add("loss", LayerKind::SoftmaxCrossEntropy, [scores])?;
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

    /// The layers of which only the cost is known, with what that is, in topological order.
    pub fn opaque_layers(&self) -> impl Iterator<Item = (&Layer, &Opaque)> {
        self.graph.node_weights().filter_map(|layer| match layer.kind() {
            LayerKind::Opaque(opaque) => Some((layer, opaque)),
            _ => None,
        })
    }

    /// The petgraph graph behind this network, for its algorithms. Edges carry the position among the consumer's
    /// inputs.
    #[must_use]
    pub fn as_petgraph(&self) -> &DiGraph<Layer, usize> {
        &self.graph
    }

    /// Number of learned parameters. Those that several layers use count once.
    #[must_use]
    pub fn parameter_count(&self) -> usize {
        self.layers().map(|(id, _)| self.own_parameter_count(id)).sum()
    }

    /// Floating-point operations of one sample's forward pass; a multiply-add counts as two.
    #[must_use]
    pub fn forward_flops(&self) -> u64 {
        self.graph.node_weights().map(Layer::forward_flops).sum()
    }

    /// Floating-point operations of one sample's backward pass.
    #[must_use]
    pub fn backward_flops(&self) -> u64 {
        self.graph.node_weights().map(Layer::backward_flops).sum()
    }

    /// Bytes of one sample's activations in single precision: the outputs of all layers.
    #[must_use]
    pub fn activation_bytes(&self) -> u64 {
        self.graph.node_weights().map(Layer::output_bytes).sum()
    }
}

impl PartialEq for LayerGraph {
    /// Same name, same layers in the same order, same wiring, same parameters shared.
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
            && self.len() == other.len()
            && self
                .layers()
                .zip(other.layers())
                .all(|((a_id, a), (b_id, b))| a == b && self.producers(a_id) == other.producers(b_id))
            && self.owners == other.owners
    }
}

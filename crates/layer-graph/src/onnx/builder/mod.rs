//! Builder of the network: its state, and the methods by which operators add layers to it.
//!
//! - A *node* is one use of an operator in the file. Its position is its index in the file, from 0.
//! - A *value* is a named tensor of the file. It is a constant, if it does not depend on the
//!   samples, or the output of a layer.
//! - A *deferred* value is computed together with later ones by one layer, or becomes the output of
//!   a layer where a node reads it.
//! - An *unknown* value is one whose node or stored tensor has a problem.

mod resolve;

use std::collections::{HashMap, HashSet};
use std::mem;

use super::OnnxError;
use super::ancestors::ancestors;
use super::constants::{Constant, Constants, IN_OTHER_FILE, ReadApart, Source, constants, folded, shape_of};
use super::deferred::Deferred;
use super::dims::BATCH;
use super::names::ParentModules;
use super::node::Node;
use super::numbers::size;
use super::proto::GraphProto;
use super::signature::{Signature, signature};
use super::supported;
use crate::{GraphError, LayerGraph, LayerId, LayerKind, Shape};

/// Network under construction, with the layers, constants and problems found in the file so far.
pub(super) struct Builder<'a> {
    /// Network of the layers added so far.
    pub(super) network: LayerGraph,
    /// Version of ONNX's operator set in the file.
    pub(super) opset: i64,
    /// Batch size (number of samples) in the file; `None` if the file does not fix it.
    pub(super) batch: Option<i64>,
    nodes: Vec<Node<'a>>,
    constants: Constants<'a>,
    /// Layers that compute the values that depend on the samples.
    layers: HashMap<&'a str, LayerId>,
    /// Values that may become a layer together with others.
    deferred: HashMap<&'a str, Deferred<'a>>,
    /// Nodes that the output depends on, except those that compute constants.
    needed: HashSet<usize>,
    /// For each value, the needed nodes that read it, with one entry for each read.
    readers: HashMap<&'a str, Vec<usize>>,
    /// Shapes in the file, without the batch dimension.
    declared: HashMap<&'a str, Vec<Option<i64>>>,
    /// Nodes that were merged into the layer of an earlier node.
    merged: HashSet<usize>,
    /// For each stored weight, the layer that owns it and all of that layer's parameters.
    owners: HashMap<String, (LayerId, Parameters)>,
    parents: ParentModules,
    output: &'a str,
    /// Numbers of nodes, of those added so far.
    pub(super) counts: NodeCounts,
    /// Problems found in the file.
    problems: Vec<OnnxError>,
    /// Values computed by nodes or tensors that have problems.
    unknown: HashSet<&'a str>,
}

/// Numbers of nodes in a file that the network leaves out or changes, and of their operators.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct NodeCounts {
    /// Number of nodes that the output does not depend on.
    pub(super) left_out: usize,
    /// Number of convolutions into which batch normalisations were folded.
    pub(super) folded: usize,
    /// Number of batch normalisations that are layers.
    pub(super) batch_norms: usize,
    /// Number of those that normalise by their running statistics.
    pub(super) frozen: usize,
    /// Number of dropouts.
    pub(super) dropouts: usize,
    /// Number of dropouts that drop nothing.
    pub(super) frozen_dropouts: usize,
}

/// Constants that are the learned parameters of a layer.
#[derive(PartialEq)]
pub(super) struct Parameters {
    /// Source of the weight.
    pub(super) weight: Source,
    /// Source of the bias. `None` for a layer without one.
    pub(super) bias: Option<Source>,
}

impl<'a> Builder<'a> {
    /// Creates the builder of a network with the given name, which holds only the inputs. Evaluates
    /// the constants of the file.
    ///
    /// # Errors
    /// [`OnnxError::Signature`] if the graph does not have an input and exactly one output, or if a
    /// dimension of an input other than the batch is not fixed. If constants have problems too,
    /// or operators are not supported, [`OnnxError::Multiple`] with all of these.
    pub(super) fn new(
        name: &str,
        graph: &'a GraphProto,
        opset: i64,
        read_apart: &'a ReadApart<'a>,
    ) -> Result<Self, OnnxError> {
        let nodes: Vec<_> = graph.node.iter().map(Node::new).collect();
        let signature = signature(name, graph);
        let output = signature.as_ref().map(|signature| signature.output);
        let needed = output.map_or_else(|_| (0..nodes.len()).collect(), |output| ancestors(&nodes, output));
        let left_out = nodes.len() - needed.len();
        let mut unread = Vec::new();
        let batch = signature.as_ref().ok().and_then(|signature| size(signature.batch?)).unwrap_or(BATCH);
        let (constants, folded) =
            constants(&graph.initializer, &nodes, &needed, (batch, read_apart), &mut unread);
        let (unknown, problems): (HashSet<_>, Vec<_>) = unread.into_iter().unzip();
        let Signature { inputs: layers, batch, network, output } = match signature {
            Ok(signature) => signature,
            Err(problem) => {
                let rest = (0..nodes.len()).filter(|i| needed.contains(i) && !folded.contains(i));
                let operators =
                    rest.map(|i| nodes[i]).filter(|node| !supported::is_supported(&node.operator()));
                let mut all = vec![problem];
                all.extend(problems);
                all.extend(operators.map(Node::unsupported_operator));
                return Err(OnnxError::of(all).expect("there is one"));
            }
        };
        let mut readers = HashMap::<_, Vec<_>>::new();
        for (i, node) in nodes.iter().enumerate().filter(|(i, _)| needed.contains(i)) {
            for value in node.inputs() {
                readers.entry(value).or_default().push(i);
            }
        }
        let infos = graph.value_info.iter().chain(&graph.output);
        let declared = infos.filter_map(|info| {
            let dims = info.dims().filter(|dims| !dims.is_empty())?;
            Some((info.name.as_str(), dims[1..].to_vec()))
        });
        Ok(Self {
            opset,
            batch,
            parents: ParentModules::of(&nodes),
            nodes,
            constants,
            layers,
            deferred: HashMap::new(),
            readers,
            declared: declared.collect(),
            needed: &needed - &folded,
            merged: HashSet::new(),
            owners: HashMap::new(),
            output,
            counts: NodeCounts { left_out, ..NodeCounts::default() },
            problems,
            unknown,
            network,
        })
    }

    /// Adds the loss and returns the network, with the numbers of nodes that it changes.
    ///
    /// # Errors
    /// The recorded problems, if there are any; [`OnnxError::Signature`] if no node computes the
    /// output, or if the output does not consist of class scores.
    pub(super) fn finish(mut self) -> Result<(LayerGraph, NodeCounts), OnnxError> {
        if let Some(problem) = OnnxError::of(mem::take(&mut self.problems)) {
            return Err(problem);
        }
        let undefined = || OnnxError::Signature(format!("no node makes the output `{}`", self.output));
        let scores = match self.deferred.get(self.output).map(|deferred| deferred.node) {
            Some(node) => self.layer(node, self.output)?,
            None => self.layers.get(self.output).copied().ok_or_else(undefined)?,
        };
        self.add_loss(scores)?;
        Ok((self.network, self.counts))
    }

    /// Returns the number of nodes in the file.
    pub(super) fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns whether the node at a position becomes a layer: whether the output depends on it and
    /// it neither computes a constant nor was merged into the layer of an earlier node.
    pub(super) fn needs_layer(&self, index: usize) -> bool {
        self.needed.contains(&index) && !self.merged.contains(&index)
    }

    /// Returns whether a node reads an unknown value.
    pub(super) fn has_unknown_input(&self, node: Node<'a>) -> bool {
        node.inputs().any(|value| self.unknown.contains(value))
    }

    /// Records the problem of a node, if there is one, and marks its outputs as unknown. `None` is
    /// a node that cannot be converted only because it reads an unknown value.
    pub(super) fn mark_unknown(&mut self, node: Node<'a>, problem: Option<OnnxError>) {
        self.problems.extend(problem);
        self.unknown.extend(node.outputs());
    }

    /// Adds softmax and cross entropy after the class scores, so that the network can be trained.
    fn add_loss(&mut self, mut scores: LayerId) -> Result<(), OnnxError> {
        let shape = self.network.layer(scores).output_shape().clone();
        let loss_error = |error: GraphError| OnnxError::Signature(error.to_string());
        match shape.dims() {
            [_] | [_, _] => {}
            [_, 1, 1] => {
                let name = self.free_name("flatten");
                scores = self.network.add(name, LayerKind::Flatten, [scores]).map_err(loss_error)?;
            }
            _ => {
                let problem = format!(
                    "the output `{}` is of shape {shape} without its batch: expected class scores, \
                     of a sample or of each position of a sequence",
                    self.output
                );
                return Err(OnnxError::Signature(problem));
            }
        }
        let name = self.free_name("loss");
        self.network.add(name, LayerKind::CROSS_ENTROPY, [scores]).map_err(loss_error)?;
        Ok(())
    }

    /// Returns the node at the given position of the file.
    pub(super) fn node(&self, index: usize) -> Node<'a> {
        self.nodes[index]
    }

    /// Returns whether the value is the output of the model.
    pub(super) fn is_output(&self, value: &str) -> bool {
        value == self.output
    }

    /// Returns the constant of this name. `None` if the value is computed from the samples or
    /// undefined.
    pub(super) fn constant(&self, value: &str) -> Option<&Constant> {
        self.constants.get(value)
    }

    /// Returns the integers that a node reads as the input at a position, from 0, or in older
    /// versions of its operator as an attribute. `what` names them in errors. `None` if the node
    /// has neither.
    ///
    /// # Errors
    /// [`OnnxError::UnsupportedUse`] if the values of the input are not known.
    pub(super) fn list(
        &self,
        node: Node<'a>,
        position: usize,
        attribute: &str,
        what: &str,
    ) -> Result<Option<&[i64]>, OnnxError> {
        let Some(value) = node.optional_input(position) else { return Ok(node.ints(attribute)) };
        match self.constant(value).and_then(|constant| constant.ints.as_deref()) {
            Some(ints) => Ok(Some(ints)),
            None => Err(self.unknown_value(node, value, what)),
        }
    }

    /// Returns the error for an input `value` of a node that must be known, such as a shape. `what`
    /// names it.
    pub(super) fn unknown_value(&self, node: Node<'a>, value: &str, what: &str) -> OnnxError {
        match self.constant(value) {
            Some(constant) if constant.is_external => node.unsupported(format!(
                "{what} `{value}` {IN_OTHER_FILE}, as onnx.save_model(..., size_threshold=1024) does"
            )),
            Some(_) => node.unsupported(format!("{what} `{value}` is no short list of integers or number")),
            None => node.unsupported(format!("{what} is computed: simplify the model first")),
        }
    }

    /// Evaluates a node that computes a shape, or a part of one, from the shapes of layers. The
    /// size of the batch is kept as [`BATCH_SIZE`](super::dims::BATCH_SIZE). Returns whether it
    /// does, in which case its output is a constant from now on.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the inputs do not fit the operator, and [`OnnxError::NotOnnx`]
    /// if the output is already defined.
    pub(super) fn fold(&mut self, node: Node<'a>) -> Result<bool, OnnxError> {
        let dims = match node.operator().as_str() {
            "Shape" => node.optional_input(0).and_then(|value| self.dims(value)),
            _ => None,
        };
        let constant = if let Some(dims) = dims {
            Some(shape_of(node, &dims)?)
        } else if node.inputs().all(|value| self.constants.contains(value)) {
            folded(node, &self.constants)?
        } else if node.operator() == "CastLike" {
            // A number of the type of a layer's output.
            node.optional_input(0).and_then(|value| self.constants.get(value)).cloned()
        } else {
            None
        };
        let Some(constant) = constant else { return Ok(false) };
        let value = node.output()?;
        if self.depends_on_samples(value) || !self.constants.insert(value, constant) {
            return Err(OnnxError::not_onnx(format!("two nodes make the value `{value}`")));
        }
        Ok(true)
    }

    /// Returns the constant that a node reads as the input at a position, from 0, such as a weight.
    ///
    /// # Errors
    /// [`OnnxError::InvalidNode`] if the input is absent, and [`OnnxError::UnsupportedUse`] if it
    /// is no constant.
    pub(super) fn parameter(&self, node: Node<'a>, position: usize) -> Result<&Constant, OnnxError> {
        let value = node.input(position)?;
        let computed =
            || node.unsupported(format!("its input `{value}` is computed, but only a constant has a layer"));
        self.constants.get(value).ok_or_else(computed)
    }

    /// Returns the output shape of a layer, without the batch dimension.
    pub(super) fn shape(&self, layer: LayerId) -> &Shape {
        self.network.layer(layer).output_shape()
    }

    /// Adds the layer of a node and defines the node's output as its output.
    ///
    /// # Errors
    /// Those of [`add_inner`](Self::add_inner) and [`define`](Self::define), and
    /// [`OnnxError::InvalidNode`] if the node has no output.
    pub(super) fn add(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        inputs: &[LayerId],
    ) -> Result<(), OnnxError> {
        let layer = self.add_inner(node, kind, inputs)?;
        self.define(node.output()?, layer)
    }

    /// Returns an unused name for a layer of a node.
    pub(super) fn layer_name(&self, node: Node<'a>) -> String {
        let parameters = node.inputs().filter(|value| self.constants.contains(value));
        let names = self.parents.layer_names(node, parameters);
        let free = names.iter().find(|name| self.network.find(name).is_none());
        free.cloned().unwrap_or_else(|| self.free_name(&names[0]))
    }

    /// Adds a layer that has a constant as its parameter, named after it, and defines the node's
    /// output as its output.
    ///
    /// # Errors
    /// Those of [`add`](Self::add).
    pub(super) fn add_of_parameter(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        input: LayerId,
        parameter: &Source,
    ) -> Result<(), OnnxError> {
        let origin = &parameter.origin;
        let name = self.free_name(origin.strip_suffix(".weight").unwrap_or(origin));
        let layer = self.network.add(name, kind, [input]).map_err(|error| node.layer_error(error))?;
        self.define(node.output()?, layer)
    }

    /// Adds a layer for a node and returns it, without defining a value as its output. Nodes that
    /// expand to several layers add all but the last one in this way.
    ///
    /// # Errors
    /// [`OnnxError::Graph`] if the layer does not fit its inputs.
    pub(super) fn add_inner(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        inputs: &[LayerId],
    ) -> Result<LayerId, OnnxError> {
        let name = self.layer_name(node);
        self.network.add(name, kind, inputs).map_err(|error| node.layer_error(error))
    }

    /// Adds a layer of the given name for a node and returns it. A number is appended to the name
    /// if a layer has it.
    ///
    /// # Errors
    /// [`OnnxError::Graph`] if the layer does not fit its inputs.
    pub(super) fn add_named(
        &mut self,
        node: Node<'a>,
        name: &str,
        kind: impl Into<LayerKind>,
        inputs: &[LayerId],
    ) -> Result<LayerId, OnnxError> {
        let name = self.free_name(name);
        self.network.add(name, kind, inputs).map_err(|error| node.layer_error(error))
    }

    /// Adds a layer that changes the input or the output of a node's layer of the given name, and
    /// returns it. Its name is this one with its kind.
    ///
    /// # Errors
    /// [`OnnxError::Graph`] if the layer does not fit its input.
    pub(super) fn add_beside(
        &mut self,
        node: Node<'a>,
        name: &str,
        kind: impl Into<LayerKind>,
        input: LayerId,
    ) -> Result<LayerId, OnnxError> {
        let kind = kind.into();
        let name = self.free_name(&format!("{name}.{}", kind.label()));
        self.network.add(name, kind, [input]).map_err(|error| node.layer_error(error))
    }

    /// Adds a layer with parameters and defines `output` as its output. If an earlier layer uses
    /// the same weight, the two layers share all parameters.
    ///
    /// Only weights are compared. Exporters store equal tensors once, so the biases and the
    /// parameters of normalisations, often all ones or all zeros, may appear shared by accident.
    ///
    /// # Errors
    /// [`OnnxError::UnsupportedUse`] if an earlier layer uses the weight transposed or with another
    /// bias, because layers share either all parameters or none; [`OnnxError::Graph`] if the layer
    /// does not fit its input; those of [`define`](Self::define).
    pub(super) fn add_weighted(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        input: LayerId,
        parameters: Parameters,
        output: &'a str,
    ) -> Result<(), OnnxError> {
        let layer = self.add_weighted_inner(node, kind, input, parameters)?;
        self.define(output, layer)
    }

    /// Adds a layer as [`add_weighted`](Self::add_weighted) does and returns it, without defining a
    /// value as its output.
    ///
    /// # Errors
    /// Those of [`add_weighted`](Self::add_weighted), but for those of defining a value.
    pub(super) fn add_weighted_inner(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        input: LayerId,
        parameters: Parameters,
    ) -> Result<LayerId, OnnxError> {
        let name = self.layer_name(node);
        self.add_weighted_named(node, &name, kind, input, parameters)
    }

    /// Adds a layer as [`add_weighted_inner`](Self::add_weighted_inner) does, of the given name. A
    /// number is appended to the name if a layer has it.
    ///
    /// # Errors
    /// Those of [`add_weighted_inner`](Self::add_weighted_inner).
    pub(super) fn add_weighted_named(
        &mut self,
        node: Node<'a>,
        name: &str,
        kind: impl Into<LayerKind>,
        input: LayerId,
        parameters: Parameters,
    ) -> Result<LayerId, OnnxError> {
        let name = self.free_name(name);
        let weight = &parameters.weight.origin;
        let layer = match self.owners.get(weight) {
            Some((owner, theirs)) if *theirs == parameters => {
                self.network.add_tied(name, kind, [input], *owner)
            }
            Some((owner, theirs)) => {
                let difference =
                    if theirs.weight == parameters.weight { "with another bias" } else { "transposed" };
                let owner = self.network.layer(*owner).name();
                let problem = format!(
                    "it uses the weight `{weight}` of `{owner}` {difference}: \
                     layers cannot share it in this way"
                );
                return Err(node.unsupported(problem));
            }
            None => self.network.add(name, kind, [input]),
        };
        let layer = layer.map_err(|error| node.layer_error(error))?;
        self.owners.entry(weight.clone()).or_insert((layer, parameters));
        Ok(layer)
    }

    /// Defines a value as the output of a layer.
    ///
    /// # Errors
    /// [`OnnxError::ShapeMismatch`] if the file declares another shape for the value, and
    /// [`OnnxError::NotOnnx`] if the value is already defined.
    pub(super) fn define(&mut self, value: &'a str, layer: LayerId) -> Result<(), OnnxError> {
        let inferred = self.network.layer(layer).output_shape().clone();
        self.check_shape(value, &inferred)?;
        match self.layers.insert(value, layer) {
            None if !self.constants.contains(value) && !self.deferred.contains_key(value) => Ok(()),
            _ => Err(OnnxError::not_onnx(format!("two nodes make the value `{value}`"))),
        }
    }

    /// Compares the inferred shape of a value with that in the file.
    fn check_shape(&self, value: &str, inferred: &Shape) -> Result<(), OnnxError> {
        if let Some(declared) = self.declared.get(value) {
            let fits = |(declared, &inferred): (&Option<i64>, &usize)| {
                declared.is_none_or(|dim| size(dim) == Some(inferred))
            };
            let dims = inferred.dims();
            if declared.len() != dims.len() || !declared.iter().zip(dims).all(fits) {
                let dims: Vec<_> =
                    declared.iter().map(|dim| dim.map_or("?".into(), |dim| dim.to_string())).collect();
                return Err(OnnxError::ShapeMismatch {
                    value: value.into(),
                    declared: dims.join("x"),
                    inferred: inferred.clone(),
                });
            }
        }
        Ok(())
    }

    /// Merges the only node that reads `value` into the layer that computes it, if that node
    /// applies `operator` with a constant of one number for each of `channels` channels. Returns
    /// the output of the merged node and the source of the constant, or `None` if no such node was
    /// merged.
    ///
    /// `axis` is the position of the channels among the `rank` dimensions of the value, from 0 and
    /// including its batch.
    pub(super) fn merge_reader(
        &mut self,
        value: &'a str,
        operator: &str,
        channels: usize,
        axis: usize,
        rank: usize,
    ) -> Option<(&'a str, Source)> {
        let [reader] = self.readers.get(value)?[..] else { return None };
        let node = self.nodes[reader];
        if self.is_output(value) || node.operator() != operator || node.inputs().count() != 2 {
            return None;
        }
        let constant = node.inputs().find_map(|input| self.constants.get(input))?;
        if !is_by_channel(&constant.dims, channels, axis, rank) {
            return None;
        }
        let merged = (node.output().ok()?, constant.source.clone());
        self.merged.insert(reader);
        Some(merged)
    }

    /// Returns `base`, with a number appended if a layer has that name.
    fn free_name(&self, base: &str) -> String {
        let mut name = base.to_owned();
        let mut number = 2;
        while self.network.find(&name).is_some() {
            name = format!("{base}.{number}");
            number += 1;
        }
        name
    }
}

/// Returns whether a tensor has one number for each channel, broadcast over the other dimensions.
fn is_by_channel(dims: &[usize], channels: usize, axis: usize, rank: usize) -> bool {
    let Some(missing) = rank.checked_sub(dims.len()) else { return false };
    let expected = |position: usize| if position == axis { channels } else { 1 };
    missing <= axis && dims.iter().enumerate().all(|(i, &dim)| dim == expected(missing + i))
}

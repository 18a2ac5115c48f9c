//! Builds the network, node by node.

use std::collections::{HashMap, HashSet};
use std::mem;

use super::OnnxError;
use super::ancestors::ancestors;
use super::constants::{Constant, Source, constants};
use super::names::Containers;
use super::node::{Node, size};
use super::operators;
use super::proto::{GraphProto, ValueInfoProto};
use crate::{GraphError, LayerGraph, LayerId, LayerKind, Shape};

/// A network under construction, and what is known of the file's values.
pub(super) struct Importer<'a> {
    pub(super) network: LayerGraph,
    /// The version of ONNX's operators that the file uses.
    pub(super) opset: i64,
    /// Samples of a batch in the file; `None` where that is left open.
    pub(super) batch: Option<i64>,
    nodes: Vec<Node<'a>>,
    constants: HashMap<String, Constant>,
    /// The layers that make the values that depend on the samples.
    layers: HashMap<&'a str, LayerId>,
    /// The nodes that the output depends on, but for those that make constants.
    wanted: HashSet<usize>,
    /// The wanted nodes that take each value, once for each time that they take it.
    takers: HashMap<&'a str, Vec<usize>>,
    /// The shapes that the file gives, without the batch dimension.
    declared: HashMap<&'a str, Vec<Option<i64>>>,
    /// Those that became part of an earlier node's layer.
    absorbed: HashSet<usize>,
    /// The layer that each stored weight belongs to, with its parameters.
    owners: HashMap<String, (LayerId, Parameters)>,
    containers: Containers,
    output: &'a str,
    /// Convolutions that the exporter folded batch normalisations into.
    pub(super) folded_batch_norms: usize,
    /// What is wrong with the file.
    problems: Vec<OnnxError>,
    /// The values that come from nodes or tensors with problems.
    unknown: HashSet<&'a str>,
}

/// The constants that are a layer's parameters.
#[derive(PartialEq)]
pub(super) struct Parameters {
    pub(super) weight: Source,
    pub(super) bias: Option<Source>,
}

impl<'a> Importer<'a> {
    pub(super) fn new(name: &str, graph: &'a GraphProto, opset: i64) -> Result<Self, OnnxError> {
        let nodes: Vec<_> = graph.node.iter().map(Node::new).collect();
        let signature = signature(name, graph);
        let output = signature.as_ref().map(|signature| signature.output);
        let wanted = output.map_or_else(|_| (0..nodes.len()).collect(), |output| ancestors(&nodes, output));
        let mut unread = Vec::new();
        let (constants, folded) = constants(&graph.initializer, &nodes, &wanted, &mut unread);
        let (unknown, problems): (HashSet<_>, Vec<_>) = unread.into_iter().unzip();
        let Signature { input, batch, network, output } = match signature {
            Ok(signature) => signature,
            Err(problem) => {
                let rest = (0..nodes.len()).filter(|i| wanted.contains(i) && !folded.contains(i));
                let operators =
                    rest.map(|i| nodes[i]).filter(|node| !operators::is_supported(&node.operator()));
                let mut all = vec![problem];
                all.extend(problems);
                all.extend(operators.map(Node::unsupported_operator));
                return Err(OnnxError::of(all).expect("there is one"));
            }
        };
        let mut takers = HashMap::<_, Vec<_>>::new();
        for (i, node) in nodes.iter().enumerate().filter(|(i, _)| wanted.contains(i)) {
            for value in node.inputs() {
                takers.entry(value).or_default().push(i);
            }
        }
        let infos = graph.value_info.iter().chain(&graph.output);
        let declared = infos.filter_map(|info| {
            let dims = info.dims().filter(|dims| !dims.is_empty())?;
            Some((info.name.as_str(), dims[1..].to_vec()))
        });
        let layers = HashMap::from([(input, network.input())]);
        Ok(Self {
            opset,
            batch,
            containers: Containers::of(&nodes),
            nodes,
            constants,
            layers,
            takers,
            declared: declared.collect(),
            wanted: &wanted - &folded,
            absorbed: HashSet::new(),
            owners: HashMap::new(),
            output,
            folded_batch_norms: 0,
            problems,
            unknown,
            network,
        })
    }

    /// Adds the layers of all nodes that the output depends on, and the loss.
    ///
    /// Returns the network, and the number of convolutions that batch normalisations were folded into.
    pub(super) fn run(mut self) -> Result<(LayerGraph, usize), OnnxError> {
        for index in 0..self.nodes.len() {
            if self.wanted.contains(&index) && !self.absorbed.contains(&index) {
                self.add_node(index);
            }
        }
        if let Some(problem) = OnnxError::of(mem::take(&mut self.problems)) {
            return Err(problem);
        }
        let undefined = || OnnxError::Signature(format!("no node makes the output `{}`", self.output));
        let scores = self.layers.get(self.output).copied().ok_or_else(undefined)?;
        self.add_loss(scores)?;
        Ok((self.network, self.folded_batch_norms))
    }

    /// Adds the layers of one node, or what is wrong with it. What it would have made of unknown values is unknown, too.
    fn add_node(&mut self, index: usize) {
        let node = self.nodes[index];
        let added = if !operators::is_supported(&node.operator()) {
            Err(Some(node.unsupported_operator()))
        } else if node.inputs().any(|value| self.unknown.contains(value)) {
            Err(None)
        } else {
            operators::add(self, index).map_err(Some)
        };
        if let Err(problem) = added {
            self.problems.extend(problem);
            self.unknown.extend(node.outputs());
        }
    }

    /// Softmax and cross entropy, which make a network that ends in class scores one that can be trained.
    fn add_loss(&mut self, mut scores: LayerId) -> Result<(), OnnxError> {
        let shape = self.network.layer(scores).output_shape().clone();
        let unfit = |error: GraphError| OnnxError::Signature(error.to_string());
        match shape.dims() {
            [_] | [_, _] => {}
            [_, 1, 1] => {
                let name = self.free_name("flatten");
                scores = self.network.add(name, LayerKind::Flatten, [scores]).map_err(unfit)?;
            }
            _ => {
                let problem = format!(
                    "the output `{}` is of shape {shape} without its batch: expected class scores, of a sample \
                     or of each position of a sequence",
                    self.output
                );
                return Err(OnnxError::Signature(problem));
            }
        }
        let name = self.free_name("loss");
        self.network.add(name, LayerKind::SoftmaxCrossEntropy, [scores]).map_err(unfit)?;
        Ok(())
    }

    pub(super) fn node(&self, index: usize) -> Node<'a> {
        self.nodes[index]
    }

    pub(super) fn is_output(&self, value: &str) -> bool {
        value == self.output
    }

    pub(super) fn constant(&self, value: &str) -> Option<&Constant> {
        self.constants.get(value)
    }

    /// An input that has to be a constant, such as a weight.
    pub(super) fn parameter(&self, node: Node<'a>, position: usize) -> Result<&Constant, OnnxError> {
        let value = node.input(position)?;
        let computed =
            || node.unsupported(format!("its input `{value}` is computed, but only a constant has a layer"));
        self.constants.get(value).ok_or_else(computed)
    }

    /// The layer that makes an input.
    pub(super) fn layer(&self, node: Node<'a>, value: &str) -> Result<LayerId, OnnxError> {
        if self.constants.contains_key(value) {
            return Err(node.unsupported(format!("its input `{value}` is a constant")));
        }
        let undefined = || OnnxError::UndefinedValue { node: node.name().into(), value: value.into() };
        self.layers.get(value).copied().ok_or_else(undefined)
    }

    pub(super) fn shape(&self, layer: LayerId) -> &Shape {
        self.network.layer(layer).output_shape()
    }

    /// Adds the layer of a node, and makes it the node's output.
    pub(super) fn add(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        inputs: &[LayerId],
    ) -> Result<(), OnnxError> {
        let layer = self.add_inner(node, kind, inputs)?;
        self.define(node.output()?, layer)
    }

    /// A name for a layer of a node.
    fn layer_name(&self, node: Node<'a>) -> String {
        let parameters = node.inputs().filter(|value| self.constants.contains_key(*value));
        let names = self.containers.layer_names(node, parameters);
        let free = names.iter().find(|name| self.network.find(name).is_none());
        free.cloned().unwrap_or_else(|| self.free_name(&names[0]))
    }

    /// Adds a layer of a node that takes several; its output is no value of the file.
    pub(super) fn add_inner(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        inputs: &[LayerId],
    ) -> Result<LayerId, OnnxError> {
        let name = self.layer_name(node);
        self.network.add(name, kind, inputs).map_err(|error| node.misfit(error))
    }

    /// Adds a layer with parameters, whose output is this value. Where an earlier layer has the same weight, they share them all,
    /// which is an error where they differ in the rest: layers share either all parameters or none.
    ///
    /// Only weights count: exporters store equal tensors once, so that the parameters of normalisations and biases, many of which
    /// are all ones or all zeros, may seem shared where they are not.
    pub(super) fn add_weighted(
        &mut self,
        node: Node<'a>,
        kind: impl Into<LayerKind>,
        input: LayerId,
        parameters: Parameters,
        output: &'a str,
    ) -> Result<(), OnnxError> {
        let name = self.layer_name(node);
        let weight = &parameters.weight.origin;
        let layer = match self.owners.get(weight) {
            Some((owner, theirs)) if *theirs == parameters => {
                self.network.add_tied(name, kind, [input], *owner)
            }
            Some((owner, theirs)) => {
                let way = if theirs.weight == parameters.weight { "with another bias" } else { "transposed" };
                let owner = self.network.layer(*owner).name();
                let problem = format!(
                    "it uses the weight `{weight}` of `{owner}` {way}: layers cannot share it in this way"
                );
                return Err(node.unsupported(problem));
            }
            None => self.network.add(name, kind, [input]),
        };
        let layer = layer.map_err(|error| node.misfit(error))?;
        self.owners.entry(weight.clone()).or_insert((layer, parameters));
        self.define(output, layer)
    }

    /// Makes a layer the one whose output a value is.
    pub(super) fn define(&mut self, value: &'a str, layer: LayerId) -> Result<(), OnnxError> {
        let inferred = self.network.layer(layer).output_shape();
        if let Some(declared) = self.declared.get(value) {
            let fits = |(declared, &inferred): (&Option<i64>, &usize)| {
                declared.is_none_or(|dim| size(dim) == Some(inferred))
            };
            let dims = inferred.dims();
            if declared.len() != dims.len() || !declared.iter().zip(dims).all(fits) {
                let dims: Vec<_> =
                    declared.iter().map(|dim| dim.map_or("?".into(), |dim| dim.to_string())).collect();
                return Err(OnnxError::OtherShape {
                    value: value.into(),
                    declared: dims.join("x"),
                    inferred: inferred.clone(),
                });
            }
        }
        match self.layers.insert(value, layer) {
            None if !self.constants.contains_key(value) => Ok(()),
            _ => Err(OnnxError::not_onnx(format!("two nodes make the value `{value}`"))),
        }
    }

    /// Makes the one node that takes a value, when it is of this operator with a constant of one number a channel, part of the
    /// layer that the value comes from. Returns what that node makes, and where the constant is from.
    ///
    /// `axis` is the position of the channels among the `rank` dimensions of the value, its batch included.
    pub(super) fn absorb(
        &mut self,
        value: &'a str,
        operator: &str,
        channels: usize,
        axis: usize,
        rank: usize,
    ) -> Option<(&'a str, Source)> {
        let [taker] = self.takers.get(value)?[..] else { return None };
        let node = self.nodes[taker];
        if self.is_output(value) || node.operator() != operator || node.inputs().count() != 2 {
            return None;
        }
        let constant = node.inputs().find_map(|input| self.constants.get(input))?;
        if !is_by_channel(&constant.dims, channels, axis, rank) {
            return None;
        }
        let absorbed = (node.output().ok()?, constant.source.clone());
        self.absorbed.insert(taker);
        Some(absorbed)
    }

    /// This name, or one like it that no layer has.
    fn free_name(&self, wanted: &str) -> String {
        let mut name = wanted.to_owned();
        let mut number = 2;
        while self.network.find(&name).is_some() {
            name = format!("{wanted}.{number}");
            number += 1;
        }
        name
    }
}

/// Whether a tensor of these dimensions has one number for each channel, broadcast over the other dimensions.
fn is_by_channel(dims: &[usize], channels: usize, axis: usize, rank: usize) -> bool {
    let Some(missing) = rank.checked_sub(dims.len()) else { return false };
    let wanted = |position: usize| if position == axis { channels } else { 1 };
    missing <= axis && dims.iter().enumerate().all(|(i, &dim)| dim == wanted(missing + i))
}

/// What a file takes and makes.
struct Signature<'a> {
    input: &'a str,
    /// The batch, if that is fixed.
    batch: Option<i64>,
    /// A network of the input alone.
    network: LayerGraph,
    output: &'a str,
}

fn signature<'a>(name: &str, graph: &'a GraphProto) -> Result<Signature<'a>, OnnxError> {
    let (input, batch, shape) = input(graph)?;
    let network = LayerGraph::new(name, shape).map_err(|error| OnnxError::Signature(error.to_string()))?;
    Ok(Signature { input, batch, network, output: output(graph)? })
}

/// The input that is not stored in the file: its name, its batch if that is fixed, and the shape of a sample.
fn input(graph: &GraphProto) -> Result<(&str, Option<i64>, Shape), OnnxError> {
    let stored: HashSet<&str> = graph.initializer.iter().map(|tensor| &*tensor.name).collect();
    let inputs: Vec<_> = graph.input.iter().filter(|input| !stored.contains(&*input.name)).collect();
    let [input] = inputs[..] else { return Err(not_one("inputs", &inputs)) };
    let open = |problem: &str| {
        OnnxError::Signature(format!(
            "the input `{}` {problem}: export the model with a fixed shape, but for its batch",
            input.name
        ))
    };
    let dims = input.dims().ok_or_else(|| open("has no shape"))?;
    let [batch, sample @ ..] = &dims[..] else { return Err(open("has no dimensions")) };
    let sample = sample.iter().map(|dim| dim.and_then(size)).collect::<Option<Vec<_>>>();
    let sample = sample.filter(|dims| !dims.is_empty()).ok_or_else(|| open("has no fixed dimensions"))?;
    Ok((&input.name, *batch, Shape::new(sample)))
}

fn output(graph: &GraphProto) -> Result<&str, OnnxError> {
    let outputs: Vec<_> = graph.output.iter().collect();
    let [output] = outputs[..] else { return Err(not_one("outputs", &outputs)) };
    Ok(&output.name)
}

fn not_one(what: &str, values: &[&ValueInfoProto]) -> OnnxError {
    let names: Vec<_> = values.iter().map(|value| value.name.as_str()).collect();
    OnnxError::Signature(format!("expected one of the {what}, found {}: {}", names.len(), names.join(", ")))
}

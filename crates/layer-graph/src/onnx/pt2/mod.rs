//! Importer of `.pt2` files (feature `onnx`), as `torch.export.save` of PyTorch 2.11 writes
//! them. They are read without Python and without PyTorch.
//!
//! ```python
//! program = torch.export.export(model.train(), (x,), dynamic_shapes=({0: Dim.DYNAMIC},))
//! torch.export.save(program, "net.pt2")
//! ```
//!
//! The operators are translated to those of ONNX, from which layers are built as
//! [`onnx`](crate::onnx) documents. In addition, the network keeps the padding tokens of
//! embeddings. Of the weights only the shapes are read.

mod archive;
mod error;
mod graph;
mod schema;
mod translate;

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Seek};

use serde::de::DeserializeOwned;
use serde_json::Value;

pub use error::Pt2Error;

use super::ancestors::ancestors;
use super::importer::import_graph;
use super::node::Node as OnnxNode;
use super::proto::{
    DimensionProto, GraphProto, TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::LayerGraph;
use archive::Archive;
use graph::Builder;
use schema::{Program, TensorMeta, Weight, Weights};
use translate::{Call, Translated, data_type_of, translate};

/// Version of the operator set to which operators are translated.
const OPSET: i64 = 24;
/// Major version of the format that is read.
const FORMAT: u64 = 8;
/// Entry of the program.
const PROGRAM: &str = "models/model.json";

/// Network imported from a `.pt2` file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Imported {
    /// Imported network.
    pub graph: LayerGraph,
    /// Version of PyTorch that saved the program; empty if the file does not have it.
    pub torch_version: String,
    /// Number of batch normalisations that normalise by their running statistics in the program, as
    /// exported in evaluation mode. The network normalises by the batch.
    pub frozen_batch_norms: usize,
    /// Number of dropouts that drop nothing in the program, as exported in evaluation mode. Those
    /// of the network drop.
    pub frozen_dropouts: usize,
}

impl Imported {
    /// Returns a warning that this network differs from the one in the file, because the module was
    /// exported in evaluation mode. `None` if it does not.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (norms, dropouts) = (self.frozen_batch_norms, self.frozen_dropouts);
        (norms + dropouts > 0).then(|| {
            format!(
                "{norms} batch normalisations of {} are frozen and {dropouts} dropouts drop nothing in the \
                 program, which was exported in evaluation mode: here they are as in training",
                self.graph.name()
            )
        })
    }
}

/// Imports a `.pt2` file as a network with the given name.
///
/// # Errors
/// - [`Pt2Error::NotPt2`] or [`Pt2Error::UnsupportedVersion`] if the file is no program in the
///   format of PyTorch 2.11.
/// - Another [`Pt2Error`] if the program cannot be expressed as a network of layers that ends in
///   class scores.
pub fn from_reader(name: &str, reader: impl Read + Seek) -> Result<Imported, Pt2Error> {
    let mut archive = Archive::new(reader).map_err(Pt2Error::NotPt2)?;
    if !archive.contains(PROGRAM) {
        let problem = if archive.contains("serialized_exported_program.json") || archive.contains("version") {
            format!("it has no entry `{PROGRAM}`: an older PyTorch wrote it, export it with PyTorch 2.11")
        } else {
            format!("it has no entry `{PROGRAM}`")
        };
        return Err(Pt2Error::NotPt2(problem));
    }
    let value: Value = parse(&archive.read(PROGRAM).map_err(Pt2Error::NotPt2)?, PROGRAM)?;
    check_version(&value)?;
    let program: Program = serde_json::from_value(value)
        .map_err(|error| Pt2Error::NotPt2(format!("its entry `{PROGRAM}`: {error}")))?;
    let stored = stored_tensors(&mut archive)?;
    let graph = translated(&program, &stored)?;
    let archive = RefCell::new(archive);
    let read = |entry: &str, offset: u64, length: usize| {
        archive.borrow_mut().read_part(entry, offset, length as u64).ok()
    };
    let (graph, counts) = import_graph(name, &graph, OPSET, &read)?;
    Ok(Imported {
        graph,
        torch_version: program.torch_version,
        frozen_batch_norms: counts.frozen,
        frozen_dropouts: counts.frozen_dropouts,
    })
}

/// Checks the version of the format, before fields are read that other versions may lack.
fn check_version(program: &Value) -> Result<(), Pt2Error> {
    let number = |name: &str| program.get("schema_version").and_then(|version| version.get(name)?.as_u64());
    let (Some(major), Some(minor)) = (number("major"), number("minor")) else {
        return Err(Pt2Error::NotPt2(format!("its entry `{PROGRAM}` has no version")));
    };
    if major != FORMAT {
        let torch = program.get("torch_version").and_then(Value::as_str).unwrap_or("?").to_owned();
        return Err(Pt2Error::UnsupportedVersion { torch, major, minor });
    }
    Ok(())
}

fn parse<T: DeserializeOwned>(bytes: &[u8], entry: &str) -> Result<T, Pt2Error> {
    serde_json::from_slice(bytes).map_err(|error| Pt2Error::NotPt2(format!("its entry `{entry}`: {error}")))
}

/// Returns the stored tensors by their names in the state dictionary, with the entries that hold
/// them.
fn stored_tensors<R: Read + Seek>(archive: &mut Archive<R>) -> Result<HashMap<String, Weight>, Pt2Error> {
    let mut all = HashMap::new();
    for (folder, list) in [
        ("data/weights/", "data/weights/model_weights_config.json"),
        ("data/constants/", "data/constants/model_constants_config.json"),
    ] {
        if archive.contains(list) {
            let weights: Weights = parse(&archive.read(list).map_err(Pt2Error::NotPt2)?, list)?;
            all.extend(weights.config.into_iter().map(|(name, mut weight)| {
                weight.path_name.insert_str(0, folder);
                (name, weight)
            }));
        }
    }
    Ok(all)
}

/// Translates a program to the graph that the importer reads.
fn translated(program: &Program, stored: &HashMap<String, Weight>) -> Result<GraphProto, Pt2Error> {
    let graph = &program.graph_module.graph;
    let mut builder = Builder::default();
    let mut names = inputs(program, stored, &mut builder)?;
    let mut unsupported = BTreeMap::<String, Vec<(String, String)>>::new();
    let mut problems = HashMap::<String, Pt2Error>::new();
    for node in &graph.nodes {
        let call = Call { node, graph, names: &names };
        let outputs = call.outputs();
        let first = outputs.first().cloned().unwrap_or_default();
        let modules = modules(node);
        builder.name.clone_from(&first);
        builder.scopes = scopes(&modules, &first);
        let changed = call.changed().map(str::to_owned);
        let place = modules.last().filter(|module| !module.is_empty()).unwrap_or(&first).clone();
        match translate(&call, &mut builder) {
            Ok(Translated::Done) => {}
            Ok(Translated::Unsupported) => {
                unsupported.entry(node.target.clone()).or_default().push((first.clone(), place));
                keep_unknown(&mut builder, &call, &outputs);
            }
            Err(problem) => {
                let operator = node.target.clone();
                problems.insert(first.clone(), Pt2Error::Node { operator, node: first.clone(), problem });
                keep_unknown(&mut builder, &call, &outputs);
            }
        }
        // Later nodes read the changed tensor.
        if let Some(changed) = changed {
            names.insert(changed, first);
        }
    }
    let output = output(program).map(|name| names.get(name).map_or(name, String::as_str).to_owned());
    let output = output.ok_or_else(|| Pt2Error::NotPt2("its program has not one output".into()))?;
    // Only what the output depends on needs layers.
    let nodes: Vec<_> = builder.graph.node.iter().map(OnnxNode::new).collect();
    let needed = ancestors(&nodes, &output);
    let is_needed = |value: &str| needed.iter().any(|&i| nodes[i].outputs().any(|output| output == value));
    if let Some((_, problem)) = problems.into_iter().find(|(value, _)| is_needed(value)) {
        return Err(problem);
    }
    let needed_operators = unsupported.into_iter().filter_map(|(operator, places)| {
        let places: Vec<String> =
            places.into_iter().filter(|(value, _)| is_needed(value)).map(|(_, place)| place).collect();
        (!places.is_empty()).then_some((operator, places))
    });
    let unsupported: Vec<_> = needed_operators.collect();
    if !unsupported.is_empty() {
        return Err(Pt2Error::UnsupportedOperators(unsupported));
    }
    let mut kept: Vec<usize> = needed.into_iter().collect();
    kept.sort_unstable();
    builder.graph.node = kept.into_iter().map(|i| builder.graph.node[i].clone()).collect();
    let shapes = graph.tensor_values.iter().filter(|(_, meta)| !meta.sizes.is_empty());
    builder.graph.value_info = shapes.map(|(name, meta)| info(name, meta)).collect();
    builder.graph.output = vec![ValueInfoProto { name: output, r#type: None }];
    Ok(builder.graph)
}

/// Adds a node for a call without translation, so that the search for what the output depends on
/// finds it.
fn keep_unknown(builder: &mut Builder, call: &Call<'_>, outputs: &[String]) {
    let names =
        call.node.inputs.iter().filter_map(|argument| argument.arg.get("as_tensor")?.get("name")?.as_str());
    let inputs: Vec<String> =
        names.map(|name| call.names.get(name).map_or(name, String::as_str).to_owned()).collect();
    let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
    builder.node_of(&call.node.target, &inputs, outputs, &[]);
}

/// Adds the input and the stored tensors. Returns the names of the stored tensors, those of the
/// state dictionary, by their names in the program.
fn inputs(
    program: &Program,
    stored: &HashMap<String, Weight>,
    builder: &mut Builder,
) -> Result<HashMap<String, String>, Pt2Error> {
    let values = &program.graph_module.graph.tensor_values;
    let mut names = HashMap::new();
    // Tied weights have one place.
    let mut owners = HashMap::<(&str, Option<i64>), String>::new();
    for spec in &program.graph_module.signature.input_specs {
        let Some((kind, spec)) = spec.as_object().and_then(|fields| fields.iter().next()) else { continue };
        let argument = spec.get("arg").and_then(|arg| arg.get("as_tensor").unwrap_or(arg).get("name"));
        let Some(argument) = argument.and_then(Value::as_str) else { continue };
        if kind == "user_input" {
            let meta = values.get(argument);
            let meta =
                meta.ok_or_else(|| Pt2Error::NotPt2(format!("its input `{argument}` has no shape")))?;
            builder.graph.input.push(info(argument, meta));
            continue;
        }
        let Some(fqn) = ["parameter_name", "buffer_name", "tensor_constant_name"]
            .iter()
            .find_map(|field| spec.get(field).and_then(Value::as_str))
        else {
            continue;
        };
        let Some(meta) = values.get(argument) else { continue };
        let weight = stored.get(fqn);
        let offset = weight.and_then(|weight| weight.tensor_meta.storage_offset.as_ref()?.known());
        let owner = match weight {
            Some(weight) => owners.entry((&weight.path_name, offset)).or_insert_with(|| fqn.into()).clone(),
            None => fqn.to_owned(),
        };
        if owner == fqn {
            let dims = meta.sizes.iter().map(|size| size.known().unwrap_or(-1)).collect();
            let place = weight.filter(|weight| is_contiguous(&weight.tensor_meta) && !weight.use_pickle);
            let place = place.map(|weight| {
                let width = if matches!(meta.dtype, 5 | 8) { 8 } else { 4 };
                (weight.path_name.clone(), offset.unwrap_or(0).saturating_mul(width))
            });
            builder.stored(fqn, dims, data_type_of(meta.dtype), place);
        }
        names.insert(argument.to_owned(), owner);
    }
    Ok(names)
}

/// Returns whether the elements of a stored tensor are in row-major order.
fn is_contiguous(meta: &TensorMeta) -> bool {
    let mut expected = 1i64;
    meta.sizes.len() == meta.strides.len()
        && meta.sizes.iter().zip(&meta.strides).rev().all(|(size, stride)| {
            let size = size.known().unwrap_or(-1);
            let fits = size == 1 || stride.known() == Some(expected);
            expected = expected.saturating_mul(size);
            fits
        })
}

/// Returns the name of the program's output, if it has one.
fn output(program: &Program) -> Option<&str> {
    let specs = program.graph_module.signature.output_specs.iter();
    let outputs: Vec<&Value> = specs.filter_map(|spec| spec.get("user_output")).collect();
    match outputs[..] {
        [only] => only.get("arg")?.get("as_tensor")?.get("name")?.as_str(),
        _ => None,
    }
}

/// Returns the name and shape of a tensor. Sizes that are not known are open.
fn info(name: &str, meta: &TensorMeta) -> ValueInfoProto {
    let dim = meta.sizes.iter().map(|size| DimensionProto { dim_value: size.known() }).collect();
    let tensor_type = Some(TensorTypeProto { shape: Some(TensorShapeProto { dim }) });
    ValueInfoProto { name: name.into(), r#type: Some(TypeProto { tensor_type }) }
}

/// Returns the full names of the modules that call a node, outermost first.
fn modules(node: &schema::Node) -> Vec<String> {
    let stack = node.metadata.get("nn_module_stack").map_or("", String::as_str);
    // Each entry is a key, the full name and the class, separated by commas.
    stack.split(';').filter_map(|entry| Some(entry.split(',').nth(1)?.to_owned())).collect()
}

/// Formats the modules of a node as PyTorch's ONNX exporter does, followed by the node's name.
fn scopes(modules: &[String], name: &str) -> String {
    let all = modules.iter().map(String::as_str).chain([name]);
    format!("[{}]", all.map(|module| format!("'{module}'")).collect::<Vec<_>>().join(", "))
}

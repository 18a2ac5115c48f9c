//! Input and output of a model: those that are not stored in the file.

use std::collections::HashSet;

use super::OnnxError;
use super::numbers::size;
use super::proto::{GraphProto, ValueInfoProto};
use crate::{LayerGraph, Shape};

/// Input and output of a model that has one of each.
pub(super) struct Signature<'a> {
    /// Name of the input.
    pub(super) input: &'a str,
    /// Batch size of the input, its first dimension; `None` if the file does not fix it.
    pub(super) batch: Option<i64>,
    /// Network that holds only the input layer, with the shape of one sample of the input.
    pub(super) network: LayerGraph,
    /// Name of the output.
    pub(super) output: &'a str,
}

/// Reads the signature of a graph; `name` becomes the name of the network.
///
/// # Errors
/// [`OnnxError::Signature`] if the graph does not have exactly one input and one output, or if a
/// dimension of the input other than the batch is not fixed.
pub(super) fn signature<'a>(name: &str, graph: &'a GraphProto) -> Result<Signature<'a>, OnnxError> {
    let (input, batch, shape) = input(graph)?;
    let network = LayerGraph::new(name, shape).map_err(|error| OnnxError::Signature(error.to_string()))?;
    Ok(Signature { input, batch, network, output: output(graph)? })
}

/// Returns the input that is not stored in the file: its name, its batch size if fixed, and the
/// shape of one sample.
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

//! Inputs and output of a model: those that are not stored in the file.

use std::collections::{HashMap, HashSet};

use super::OnnxError;
use super::numbers::size;
use super::proto::{GraphProto, ValueInfoProto};
use crate::{GraphError, LayerGraph, LayerId, Shape};

/// Inputs and output of a model that has one output.
pub(super) struct Signature<'a> {
    /// Input layers by the names of the inputs.
    pub(super) inputs: HashMap<&'a str, LayerId>,
    /// Batch size of the inputs, their first dimension; `None` if the file does not fix it.
    pub(super) batch: Option<i64>,
    /// Network that holds only the input layers. The first is `input`; the others have the names of
    /// the inputs.
    pub(super) network: LayerGraph,
    /// Name of the output.
    pub(super) output: &'a str,
}

/// Reads the signature of a graph; `name` becomes the name of the network.
///
/// # Errors
/// [`OnnxError::Signature`] if the graph does not have an input and exactly one output, if a
/// dimension of an input other than the batch is not fixed, or if inputs have different batches.
pub(super) fn signature<'a>(name: &str, graph: &'a GraphProto) -> Result<Signature<'a>, OnnxError> {
    let stored: HashSet<&str> = graph.initializer.iter().map(|tensor| &*tensor.name).collect();
    let values = graph.input.iter().filter(|input| !stored.contains(&*input.name));
    let values = values.map(input).collect::<Result<Vec<_>, OnnxError>>()?;
    let [(first, _, shape), others @ ..] = &values[..] else {
        return Err(OnnxError::Signature("expected an input, found none".into()));
    };
    let failed = |error: GraphError| OnnxError::Signature(error.to_string());
    let mut network = LayerGraph::new(name, shape.clone()).map_err(failed)?;
    let mut inputs = HashMap::from([(*first, network.input())]);
    for (value, _, shape) in others {
        let called = if network.find(value).is_some() { format!("{value}.2") } else { (*value).into() };
        inputs.insert(value, network.add_input(called, shape.clone()).map_err(failed)?);
    }
    let batches: Vec<(&str, i64)> =
        values.iter().filter_map(|(value, batch, _)| Some((*value, (*batch)?))).collect();
    let batch = batches.first().copied();
    if let Some((batch, other)) =
        batch.zip(batches.iter().find(|(_, size)| Some(*size) != batch.map(|b| b.1)))
    {
        return Err(OnnxError::Signature(format!(
            "the inputs `{}` and `{}` have batches of {} and {} samples",
            batch.0, other.0, batch.1, other.1
        )));
    }
    Ok(Signature { inputs, batch: batch.map(|(_, size)| size), network, output: output(graph)? })
}

/// Returns the name of an input that is not stored in the file, its batch size if fixed, and the
/// shape of one sample.
fn input(input: &ValueInfoProto) -> Result<(&str, Option<i64>, Shape), OnnxError> {
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
    let [output] = outputs[..] else {
        let names: Vec<_> = outputs.iter().map(|value| value.name.as_str()).collect();
        let problem = format!("expected one of the outputs, found {}: {}", names.len(), names.join(", "));
        return Err(OnnxError::Signature(problem));
    };
    Ok(&output.name)
}

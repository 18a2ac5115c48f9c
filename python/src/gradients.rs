//! Gradients computed by the layer engine, for comparison with PyTorch.

use std::collections::BTreeMap;

use deeppool::layer_graph::LayerGraph;
use deeppool::train;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{exception, input_error};

/// Dimensions, outermost first, and elements as little-endian bytes in double precision.
type Tensor<'py> = (Vec<usize>, Bound<'py, PyBytes>);

/// Returns the loss of a batch and its gradient with respect to each parameter, as
/// `deeppool::train::gradients` does.
///
/// Arguments: `network` is a document of the format `deeppool/graph/v1`; `parameters` are by name,
/// each with its dimensions and elements; `features` and `labels` are of all samples, one after
/// another. All elements are little-endian bytes in double precision.
///
/// Raises `InputError` if the network is invalid, a parameter is missing or has another shape, or
/// the features or labels do not fit the network.
#[pyfunction]
pub(crate) fn gradients<'py>(
    py: Python<'py>,
    network: &str,
    parameters: BTreeMap<String, Tensor<'py>>,
    features: &[u8],
    labels: &[u8],
) -> PyResult<(f64, BTreeMap<String, Tensor<'py>>)> {
    let parameters: BTreeMap<_, _> = parameters
        .into_iter()
        .map(|(name, (dims, bytes))| (name, (dims, numbers(bytes.as_bytes()))))
        .collect();
    let (features, labels) = (numbers(features), numbers(labels));
    let gradients = py.detach(|| {
        let network = LayerGraph::from_json(network).map_err(input_error)?;
        train::gradients(&network, &parameters, &features, &labels).map_err(exception)
    })?;
    let bytes = |values: Vec<f64>| -> Vec<u8> { values.into_iter().flat_map(f64::to_le_bytes).collect() };
    let loss = gradients.loss;
    let tensors = gradients.of_parameters.into_iter();
    let tensors = tensors.map(|(name, (dims, values))| (name, (dims, PyBytes::new(py, &bytes(values)))));
    Ok((loss, tensors.collect()))
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    let words = bytes.chunks_exact(8);
    words.map(|word| f64::from_le_bytes(word.try_into().unwrap_or_default())).collect()
}

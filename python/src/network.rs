//! Networks: built-in ones, those of ONNX files, and their descriptions.

use std::io::BufReader;
use std::path::{Path, PathBuf};

use command_line::files::{open_as, read_as, read_text_as};
use deeppool::layer_graph::{LayerGraph, Shape, hf, onnx, pt2, zoo};
use pyo3::prelude::*;
use serde_json::{Value, json};

use crate::error::input_error;
use crate::inputs;

/// Returns the names of the built-in networks.
#[pyfunction]
pub(crate) fn network_names() -> Vec<&'static str> {
    zoo::names()
}

/// Returns a built-in network as a document of the format `deeppool/graph/v1`.
///
/// Raises `InputError` if there is no built-in network of this name.
#[pyfunction]
pub(crate) fn network_of_zoo(name: &str) -> PyResult<String> {
    inputs::model(name).map(|network| network.to_json()).map_err(input_error)
}

/// Returns the network of an ONNX file as a document of the format `deeppool/graph/v1`, and a
/// warning if the training network differs from the exported one, or `None`. The network has the
/// name of the file without its extension.
///
/// Raises `InputError` if the file cannot be read or imported.
#[pyfunction]
pub(crate) fn network_of_onnx(py: Python<'_>, path: PathBuf) -> PyResult<(String, Option<String>)> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy().into_owned());
    let imported = py.detach(move || {
        let folder = path.parent().unwrap_or(Path::new(""));
        read_as(&path, |content| onnx::from_vec_in(&name, content, folder))
    });
    let imported = imported.map_err(input_error)?;
    Ok((imported.graph.to_json(), imported.warning()))
}

/// Returns the network of a `.pt2` file as a document of the format `deeppool/graph/v1`, and a
/// warning if the training network differs from the exported one, or `None`. The network has the
/// name of the file without its extension.
///
/// Raises `InputError` if the file cannot be read or imported.
#[pyfunction]
pub(crate) fn network_of_pt2(py: Python<'_>, path: PathBuf) -> PyResult<(String, Option<String>)> {
    let name = path.file_stem().map_or("pt2".into(), |stem| stem.to_string_lossy().into_owned());
    let imported = py.detach(move || open_as(&path, |file| pt2::from_reader(&name, BufReader::new(file))));
    let imported = imported.map_err(input_error)?;
    Ok((imported.graph.to_json(), imported.warning()))
}

/// Returns the network of a `config.json` of the package `transformers` for sequences of `sequence`
/// tokens, or for images without it, as a document of the format `deeppool/graph/v1`, and what it
/// lacks in a few words each.
///
/// Raises `InputError` if the file cannot be read or is not a configuration of a known family, or
/// if `sequence` does not fit the family.
#[pyfunction]
pub(crate) fn network_of_config(
    py: Python<'_>,
    path: PathBuf,
    sequence: Option<usize>,
) -> PyResult<(String, Vec<String>)> {
    let name = hf::network_name(&path);
    let configured = py.detach(move || read_text_as(&path, |text| hf::from_config(&name, text, sequence)));
    let configured = configured.map_err(input_error)?;
    Ok((configured.network.to_json(), configured.left_out))
}

/// Checks a document of the format `deeppool/graph/v1`, and returns as a JSON object each layer's
/// shapes, parameters, floating-point operations and bytes of one sample, and their sums.
///
/// Raises `InputError` if the document is invalid.
#[pyfunction]
pub(crate) fn describe_network(py: Python<'_>, network: &str) -> PyResult<String> {
    py.detach(|| LayerGraph::from_json(network).map(|network| description(&network).to_string()))
        .map_err(input_error)
}

fn description(network: &LayerGraph) -> Value {
    let layers: Vec<Value> = network
        .layers()
        .map(|(id, layer)| {
            let producers =
                network.producers(id).into_iter().map(|id| network.layer(id).name()).collect::<Vec<_>>();
            let tensors = layer.parameters();
            let parameters = tensors.iter().map(|tensor| json!({"name": tensor.name, "shape": tensor.dims}));
            let owner = network.parameter_owner(id);
            json!({
                "name": layer.name(), "kind": layer.kind().label(), "inputs": producers,
                "shape": layer.output_shape().dims(),
                "input_shapes": layer.input_shapes().iter().map(Shape::dims).collect::<Vec<_>>(),
                "parameters": parameters.collect::<Vec<_>>(), "parameter_count": layer.parameter_count(),
                "parameters_of": (owner != id).then(|| network.layer(owner).name()),
                "forward_flops": layer.forward_flops(), "backward_flops": layer.backward_flops(),
                "input_bytes": layer.input_bytes(), "output_bytes": layer.output_bytes(),
            })
        })
        .collect();
    json!({
        "name": network.name(), "parameter_count": network.parameter_count(),
        "forward_flops": network.forward_flops(), "backward_flops": network.backward_flops(),
        "activation_bytes": network.activation_bytes(), "layers": layers,
    })
}

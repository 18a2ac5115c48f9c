//! Values that options name or read from files.

use std::path::Path;

use command_line::InputError;
use command_line::files::{read_as, read_text_as};
use command_line::names::get_by_name;
use layer_graph::{LayerGraph, onnx, zoo};

/// Builds a network of the zoo.
pub(crate) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Reads a network in the format `deeppool/graph/v1`.
pub(crate) fn graph(path: &Path) -> Result<LayerGraph, InputError> {
    read_text_as(path, LayerGraph::from_json)
}

/// Imports an ONNX file. The network gets the name of the file, without its extension.
pub(crate) fn onnx(path: &Path) -> Result<onnx::Imported, InputError> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    read_as(path, |content| onnx::from_vec(&name, content))
}

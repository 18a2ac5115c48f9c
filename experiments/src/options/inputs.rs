//! Values that options name or read from files.

use std::path::Path;

use command_line::InputError;
use command_line::files::read_as;
use command_line::names::get_by_name;
use layer_graph::{LayerGraph, onnx, zoo};

/// Builds a network of the zoo.
pub(super) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Imports an ONNX file. The network gets the name of the file, without its extension.
pub(super) fn onnx(path: &Path) -> Result<onnx::Imported, InputError> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    read_as(path, |content| onnx::from_vec(&name, content))
}

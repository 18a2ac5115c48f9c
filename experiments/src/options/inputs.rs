//! Values that options name or read from files. The functions fail if a name is unknown, or if a
//! file cannot be read or is invalid. The error names the value or the file, and lists the known
//! names where there are any.

use std::path::Path;

use collectives::LinkModel;
use command_line::InputError;
use command_line::files::{read_as, read_text_as};
use command_line::names::{get_by_name, get_by_name_or_file};
use deeppool::gpu_mux::Policy;
use deeppool::simulate::policy_named;
use layer_graph::{LayerGraph, onnx, zoo};
use layer_profile::{DeviceModel, ProfileTable};

/// Builds a built-in network.
pub(super) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Imports an ONNX file. The network is named after the file, without its extension.
pub(super) fn onnx(path: &Path) -> Result<onnx::Imported, InputError> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    read_as(path, |content| onnx::from_vec(&name, content))
}

/// Returns a built-in device model, or reads the file of one.
pub(super) fn device(name_or_file: &str) -> Result<DeviceModel, InputError> {
    get_by_name_or_file(name_or_file, DeviceModel::names(), DeviceModel::named, DeviceModel::from_json)
}

/// Reads a file of layer times, as written by `deeppool profile`.
pub(super) fn profile(path: &Path) -> Result<ProfileTable, InputError> {
    read_text_as(path, ProfileTable::from_json)
}

/// Returns a built-in link model, or reads the file of one.
pub(crate) fn link(name_or_file: &str) -> Result<LinkModel, InputError> {
    get_by_name_or_file(name_or_file, LinkModel::names(), LinkModel::named, LinkModel::from_json)
}

/// Returns the GPU-sharing policy of a name.
pub(crate) fn policy(name: &str) -> Result<Policy, InputError> {
    get_by_name(name, Policy::all().iter().map(|(known, _)| *known), policy_named)
}

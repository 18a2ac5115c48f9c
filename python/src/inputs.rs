//! Networks, device models, link models and policies by name or file. Names are matched without
//! regard to case and punctuation. The error of an unknown name has a suggestion, and that of a
//! file has its path.

use command_line::InputError;
use command_line::names::{get_by_name, get_by_name_or_file};
use deeppool::collectives::LinkModel;
use deeppool::gpu_mux::Policy;
use deeppool::layer_graph::{LayerGraph, zoo};
use deeppool::layer_profile::DeviceModel;
use deeppool::simulate::policy_named;

/// Builds the built-in network with the given name.
///
/// # Errors
/// If the name is unknown.
pub(crate) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Returns the built-in device model with the given name, or reads one from a JSON file.
///
/// # Errors
/// If the name is unknown, or the file cannot be read or is invalid.
pub(crate) fn device(name_or_file: &str) -> Result<DeviceModel, InputError> {
    get_by_name_or_file(name_or_file, DeviceModel::names(), DeviceModel::named, DeviceModel::from_json)
}

/// Returns the built-in link model with the given name, or reads one from a JSON file.
///
/// # Errors
/// If the name is unknown, or the file cannot be read or is invalid.
pub(crate) fn link(name_or_file: &str) -> Result<LinkModel, InputError> {
    get_by_name_or_file(name_or_file, LinkModel::names(), LinkModel::named, LinkModel::from_json)
}

/// Returns the multiplexer's policy with the given name.
///
/// # Errors
/// If the name is unknown.
pub(crate) fn policy(name: &str) -> Result<Policy, InputError> {
    get_by_name(name, Policy::all().iter().map(|(known, _)| *known), policy_named)
}

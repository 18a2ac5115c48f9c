//! Values by name, or from a file.

use command_line::InputError;
use command_line::names::{get_by_name, get_by_name_or_file};
use deeppool::layer_graph::{LayerGraph, zoo};
use deeppool::layer_profile::DeviceModel;

/// Builds a network of the zoo.
pub(crate) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Returns a built-in device model, or reads the file of one.
pub(crate) fn device(name_or_file: &str) -> Result<DeviceModel, InputError> {
    get_by_name_or_file(name_or_file, DeviceModel::names(), DeviceModel::named, DeviceModel::from_json)
}

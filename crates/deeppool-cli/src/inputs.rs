//! Values that options name or read from files. Names are matched without regard to case and
//! punctuation. Every error is in one line: an unknown name with a suggestion, or the path of a
//! file that cannot be read with the reason.

use std::io::BufReader;
use std::path::Path;

use anyhow::Context;
use collectives::LinkModel;
use command_line::InputError;
use command_line::files::{self, open_as, read_as, read_text_as};
use command_line::names::{get_by_name, get_by_name_or_file};
use deeppool::gpu_mux::Policy;
use deeppool::machine::Calibration;
use deeppool::plan::ExecutionPlan;
use deeppool::simulate::policy_named;
use deeppool::train::Weights;
use layer_graph::{LayerGraph, hf, onnx, pt2, zoo};
use layer_profile::{DataSheet, DeviceModel, ProfileTable, PublishedProfile};

/// Builds the built-in network with the given name.
///
/// # Errors
/// If the name is unknown.
pub(crate) fn model(name: &str) -> Result<LayerGraph, InputError> {
    get_by_name(name, zoo::names(), zoo::model)
}

/// Reads a network in the format `deeppool/graph/v1`.
///
/// # Errors
/// If the file cannot be read or is not of this format.
pub(crate) fn graph(path: &Path) -> Result<LayerGraph, InputError> {
    read_text_as(path, LayerGraph::from_json)
}

/// Imports a network from an ONNX file. The network gets the name of the file, without its
/// extension.
///
/// # Errors
/// If the file cannot be read or imported.
pub(crate) fn onnx(path: &Path) -> Result<onnx::Imported, InputError> {
    let name = path.file_stem().map_or("onnx".into(), |stem| stem.to_string_lossy());
    let folder = path.parent().unwrap_or(Path::new(""));
    read_as(path, |content| onnx::from_vec_in(&name, content, folder))
}

/// Imports a network from a `.pt2` file. The network gets the name of the file, without its
/// extension.
///
/// # Errors
/// If the file cannot be read or imported.
pub(crate) fn pt2(path: &Path) -> Result<pt2::Imported, InputError> {
    let name = path.file_stem().map_or("pt2".into(), |stem| stem.to_string_lossy());
    open_as(path, |file| pt2::from_reader(&name, BufReader::new(file)))
}

/// Builds the network of a `config.json` of `transformers`. `positions` is the number of tokens of
/// a sample, or `None` for images.
///
/// # Errors
/// If the file cannot be read or is not a configuration of a known family, or if `positions` does
/// not fit the family.
pub(crate) fn configured(path: &Path, positions: Option<usize>) -> Result<hf::Configured, InputError> {
    read_text_as(path, |content| hf::from_config(&hf::network_name(path), content, positions))
}

/// Returns the built-in device model with the given name, or reads one from a JSON file.
///
/// # Errors
/// If the name is unknown, or the file cannot be read or is invalid.
pub(crate) fn device(name_or_file: &str) -> Result<DeviceModel, InputError> {
    get_by_name_or_file(name_or_file, DeviceModel::names(), DeviceModel::named, DeviceModel::from_json)
}

/// Returns the data sheet (memory, bandwidth and peak FLOP/s) of the GPU with the given name.
///
/// # Errors
/// If the name is unknown.
pub(crate) fn data_sheet(name: &str) -> Result<DataSheet, InputError> {
    get_by_name(name, DataSheet::names(), DataSheet::named)
}

/// Reads layer times in the format `deeppool/profile/v1`.
///
/// # Errors
/// If the file cannot be read or is not of this format.
pub(crate) fn profile(path: &Path) -> Result<ProfileTable, InputError> {
    read_text_as(path, ProfileTable::from_json)
}

/// Reads layer times in the text format of the original DeepPool.
///
/// # Errors
/// If the file cannot be read or is not of this format.
pub(crate) fn published_profile(path: &Path) -> Result<PublishedProfile, InputError> {
    read_text_as(path, PublishedProfile::from_text)
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

/// Reads a plan in the format `deeppool/plan/v3`.
///
/// # Errors
/// If the file cannot be read or is not of this format.
pub(crate) fn plan(path: &Path) -> Result<ExecutionPlan, InputError> {
    read_text_as(path, ExecutionPlan::from_json)
}

/// Reads earlier runs in the format `deeppool/calibration/v1`.
///
/// # Errors
/// If the file cannot be read or is not of this format.
pub(crate) fn calibration(path: &Path) -> Result<Calibration, InputError> {
    read_text_as(path, Calibration::from_json)
}

/// Reads weights from a safetensors file.
///
/// # Errors
/// If the file cannot be read, is not a safetensors file, or has a tensor that is not in single
/// precision.
pub(crate) fn weights(path: &Path) -> anyhow::Result<Weights> {
    let name = path.display().to_string();
    let content = files::read(path).with_context(|| name.clone())?;
    Ok(Weights::from_safetensors(name, &content)?)
}

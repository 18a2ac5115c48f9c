//! The workload of a run.

use std::path::Path;

use command_line::files::read_text_as;
use gpu_mux::Workload;

use crate::command::bad_input;

/// VGG-16 in a burst-parallel job, on the rank that idles most.
const BUILT_IN: &str = include_str!("../../../crates/gpu-mux/workloads/vgg16-8-gpus-rank-1.json");

/// Reads a workload file, or returns the built-in workload without one.
///
/// # Errors
/// Bad input, if the file cannot be read or is invalid.
pub(crate) fn read(path: Option<&Path>) -> anyhow::Result<Workload> {
    match path {
        Some(path) => read_text_as(path, Workload::from_json).map_err(|error| bad_input(error.to_string())),
        None => Ok(Workload::from_json(BUILT_IN)?),
    }
}

//! Measurement of a profile on the processor.

use layer_engine::CpuEngine;
use layer_graph::LayerGraph;
use layer_profile::{ProfileTable, Profiler};

use crate::Error;

/// Measures the layer times of a network on this machine: with the CPU engine on the given number
/// of threads, for each of the given batch sizes (in samples). It takes seconds to minutes.
///
/// # Errors
/// [`Error::Profile`] if there are no batch sizes or the engine cannot run the network.
/// [`Error::Engine`] if its threads cannot be created.
pub fn measure_profile(
    network: &LayerGraph,
    batches: Vec<usize>,
    threads: usize,
) -> Result<ProfileTable, Error> {
    let engine = CpuEngine::<f32>::with_threads(threads)?;
    Ok(Profiler::new(&engine).batches(batches).profile(network)?)
}

use layer_engine::CpuEngine;
use layer_graph::LayerGraph;
use layer_profile::{ProfileTable, Profiler};

use crate::Error;

/// Measures the layer times of a network on this machine, with the engine of
/// [`train`](crate::train::train) on the given number of threads, for each of the given batch
/// sizes. It takes seconds to minutes.
///
/// # Errors
/// If there are no batch sizes, or the engine cannot run the network.
pub fn measured(network: &LayerGraph, batches: Vec<usize>, threads: usize) -> Result<ProfileTable, Error> {
    let engine = CpuEngine::<f32>::with_threads(threads)?;
    Ok(Profiler::new(&engine).batches(batches).profile(network)?)
}

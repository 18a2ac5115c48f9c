use layer_engine::CpuEngine;
use layer_graph::LayerGraph;
use layer_profile::{ProfileTable, Profiler};

use crate::Error;

/// How long the layers of a network take here, measured: on the engine that [`train`](crate::train::train) trains with, on so many
/// threads of this machine's processor, with each of these numbers of samples. It takes seconds to minutes.
///
/// # Errors
/// Where there are no batches, or the engine cannot run the network.
pub fn measured(network: &LayerGraph, batches: Vec<usize>, threads: usize) -> Result<ProfileTable, Error> {
    let engine = CpuEngine::<f32>::with_threads(threads)?;
    Ok(Profiler::new(&engine).batches(batches).profile(network)?)
}

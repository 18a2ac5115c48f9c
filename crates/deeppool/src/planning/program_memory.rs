//! The memory of lowered programs, which the planner's memory model estimates.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use burst_planner::{Arrangement, Error as Unplanned};
use layer_graph::LayerGraph;

use crate::Error;
use crate::job::{Job, PlannerNodes};
use crate::plan::{Mode, PlanRequest};
use crate::program::{LoweredTraining, RankProgram};

/// Maximum number of layers listed in an error message.
const MAX_NAMED_LAYERS: usize = 3;

/// Returns the memory of the fullest rank in the program of an arrangement on `gpus` GPUs, in
/// bytes. One lowering.
pub(super) fn program_bytes(job: &Job<'_>, gpus: usize, arrangement: &Arrangement) -> Result<u64, Error> {
    let placement = job.nodes().placement(gpus, arrangement)?;
    Ok(job.training(placement).for_simulation()?.peak_bytes())
}

/// Returns the maximum number of GPUs of data parallelism for a request, with micro-batches of the
/// given number of samples.
pub(super) fn data_parallel_gpus(request: &PlanRequest, samples: usize) -> usize {
    match request.mode {
        Mode::DataParallel => request.gpus.min(samples),
        _ => request.gpu_counts.for_batch(samples, request.gpus).last().copied().unwrap_or(1),
    }
}

/// Returns data parallelism on `count` GPUs.
pub(super) fn data_parallel_on(job: &Job<'_>, count: usize) -> Arrangement {
    // Layers are numbered in topological order.
    let nodes = PlannerNodes::new(job.costs().network()).layers().len();
    Arrangement::new(vec![(0..count).collect(); nodes], (0..nodes).collect())
}

/// Checks the memory of the fullest rank of programs against a limit.
///
/// # Errors
/// [`Error::Planner`] if it is exceeded.
pub(super) fn check_memory(training: &LoweredTraining<'_>, limit_bytes: Option<u64>) -> Result<(), Error> {
    let Some(limit_bytes) = limit_bytes else { return Ok(()) };
    let program = training.for_simulation()?;
    let fullest = program.fullest_rank().filter(|rank| rank.total_bytes() > limit_bytes);
    let Some(fullest) = fullest else { return Ok(()) };
    let nodes = largest_layers(training.network(), fullest);
    Err(Unplanned::MemoryExceeded { limit_bytes, needed_bytes: fullest.total_bytes(), nodes }.into())
}

/// Returns the names of the layers with the largest memory at the fullest step of a rank, with
/// their bytes, the largest first.
fn largest_layers(network: &LayerGraph, rank: &RankProgram) -> Vec<(String, u64)> {
    let mut by_layer = BTreeMap::new();
    for part in rank.fullest_moment().layers {
        if let Some(layer) = part.layer {
            *by_layer.entry(layer).or_default() += part.bytes;
        }
    }
    let name = |(layer, bytes)| (network.layer(layer).name().to_owned(), bytes);
    let mut layers: Vec<(String, u64)> = by_layer.into_iter().map(name).collect();
    layers.sort_by_key(|&(_, bytes)| Reverse(bytes));
    layers.truncate(MAX_NAMED_LAYERS);
    layers
}

//! The memory of lowered programs, which the planner's memory model estimates.

use burst_planner::{Arrangement, Error as Unplanned};
use layer_graph::{LayerGraph, LayerId};

use crate::Error;
use crate::job::{Job, PlannerNodes};
use crate::program::{Contents, ELEMENT_BYTES, LoweredTraining, RankProgram};

/// Maximum number of layers listed in an error message.
const MAX_NAMED_LAYERS: usize = 3;

/// Returns the memory of the fullest rank in the program of an arrangement on `gpus` GPUs, in
/// bytes. One lowering.
pub(super) fn program_bytes(job: &Job<'_>, gpus: usize, arrangement: &Arrangement) -> Result<u64, Error> {
    let placement = PlannerNodes::new(job.costs().network()).placement(gpus, arrangement)?;
    Ok(job.training(placement).for_simulation()?.memory_peak().total_bytes())
}

/// Returns data parallelism on `count` GPUs.
pub(super) fn data_parallel_on(job: &Job<'_>, count: usize) -> Arrangement {
    // Layers are numbered in topological order.
    let nodes = PlannerNodes::new(job.costs().network()).layers().len();
    Arrangement { ranks: vec![(0..count).collect(); nodes], order: (0..nodes).collect() }
}

/// Checks the memory of the fullest rank of programs against a limit.
///
/// # Errors
/// [`Error::Planner`] if it is exceeded.
pub(super) fn check_memory(training: &LoweredTraining<'_>, limit_bytes: Option<u64>) -> Result<(), Error> {
    let Some(limit_bytes) = limit_bytes else { return Ok(()) };
    let program = training.for_simulation()?;
    let bytes = |rank: &RankProgram| rank.memory().total_bytes();
    let fullest = program.ranks.iter().max_by_key(|rank| bytes(rank));
    let Some(fullest) = fullest.filter(|rank| bytes(rank) > limit_bytes) else { return Ok(()) };
    let nodes = largest_layers(training.network(), fullest);
    Err(Unplanned::MemoryExceeded { limit_bytes, needed_bytes: bytes(fullest), nodes }.into())
}

/// Returns the names of the layers with the largest memory at the fullest step of a rank, with
/// their bytes, the largest first.
fn largest_layers(network: &LayerGraph, rank: &RankProgram) -> Vec<(String, u64)> {
    let layer = |contents: Contents| -> Option<LayerId> {
        match contents {
            Contents::Operand(id, _) | Contents::Velocity(id) | Contents::Moved(id) => Some(id),
            Contents::Constant(_) | Contents::SquaredNorm | Contents::Packed => None,
        }
    };
    let mut by_layer = vec![0; network.len()];
    let alive = rank.fullest_step().1.into_iter().map(|id| id.0);
    for id in (0..rank.state_buffers).chain(alive) {
        let buffer = &rank.buffers[id];
        if let Some(id) = layer(buffer.contents) {
            by_layer[id.index()] += buffer.elements as u64 * ELEMENT_BYTES;
        }
    }
    let layers = network.layers().map(|(id, layer)| (layer.name().to_owned(), by_layer[id.index()]));
    let mut layers: Vec<(String, u64)> = layers.filter(|&(_, bytes)| bytes > 0).collect();
    layers.sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
    layers.truncate(MAX_NAMED_LAYERS);
    layers
}

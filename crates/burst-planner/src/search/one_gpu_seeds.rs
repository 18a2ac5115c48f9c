//! Initial arrangements with every node on one GPU.

use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::placement::{PlacementProblem, PlacementSearch, place_on_each};
use crate::{Result, Stop};

/// Maximum number of branches of the placement search for each number of GPUs. Several thousand
/// take a millisecond.
const BRANCHES: f64 = 3e4;
/// Maximum number of GPUs of arrangements with each node on one GPU.
const MAX_GPUS: usize = 16;

/// Returns arrangements with every node on one GPU. Entry i uses at most the first i + 1 ranks and
/// has the minimum time that the search of [the model of placements](crate::placement) finds; there
/// are at most 16 entries, and at most `gpus`. `effort` multiplies the number of branches of the
/// search. Empty if no node has several consumers. Fails with
/// [`Error::Stopped`](crate::Error::Stopped).
pub(super) fn one_gpu_placements(
    evaluator: &mut Evaluator<'_>,
    gpus: usize,
    effort: f64,
    stop: &Stop,
) -> Result<Vec<NumberedArrangement>> {
    let problem = evaluator.problem();
    let has_branches = evaluator.structure().consumers.iter().any(|consumers| consumers.len() > 1);
    if !has_branches {
        return Ok(Vec::new());
    }
    let gpus = gpus.min(MAX_GPUS);
    let Ok(placement) = PlacementProblem::from_problem(problem, evaluator.costs(), gpus) else {
        return Ok(Vec::new());
    };
    let search = PlacementSearch::default().with_branches((effort * BRANCHES) as u64).with_stop(stop.clone());
    let found = place_on_each(&placement, &search)?;
    Ok(found.iter().flatten().filter_map(|found| evaluator.numbered(&found.arrangement()).ok()).collect())
}

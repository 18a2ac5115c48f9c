//! Each node on one GPU, side by side.

use crate::evaluator::{Evaluator, NumberedArrangement};
use crate::placement::{PlacementProblem, PlacementSearch, place_on_each};
use crate::{Result, Stop};

/// So many branches of placements are looked at with each number of GPUs; several thousand take a millisecond.
const BRANCHES: f64 = 20_000.0;
/// With more GPUs than this there is little that nodes on one each could do for each other.
pub(super) const MAX_GPUS: usize = 16;

/// By number of GPUs, from one up to `gpus`: the placement of all nodes on one of them each that takes least by [the model of
/// placements](crate::placement). None where nodes follow each other in a chain, or may not run on one GPU.
pub(super) fn one_gpu_placements(
    evaluator: &mut Evaluator<'_>,
    gpus: usize,
    effort: f64,
    stop: &Stop,
) -> Result<Vec<NumberedArrangement>> {
    let problem = evaluator.problem();
    let may_be_alone = problem.nodes.iter().all(|node| node.gpu_counts.first() == Some(&1));
    let has_branches = evaluator.structure().consumers.iter().any(|consumers| consumers.len() > 1);
    if !may_be_alone || !has_branches {
        return Ok(Vec::new());
    }
    let gpus = gpus.min(MAX_GPUS);
    let Ok(placement) = PlacementProblem::from_problem(problem, evaluator.costs(), gpus) else {
        return Ok(Vec::new());
    };
    // More where nothing else can be chosen.
    let is_all = problem.nodes.iter().all(|node| node.gpu_counts.len() == 1);
    let branches = effort * BRANCHES * if is_all { 50.0 } else { 1.0 };
    let search = PlacementSearch::default().with_branches(branches as u64).with_stop(stop.clone());
    let found = place_on_each(&placement, &search)?;
    Ok(found.iter().flatten().filter_map(|found| evaluator.numbered(&found.arrangement()).ok()).collect())
}

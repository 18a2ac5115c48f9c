//! Each node on one GPU, side by side.

use super::super::evaluator::{Evaluator, Numbered};
use crate::placement::{PlacementProblem, PlacementSearch, place};
use crate::{Result, Stop};

/// So many branches of placements are looked at with each number of GPUs; several thousand take a millisecond.
const BRANCHES: f64 = 20_000.0;
/// With more GPUs than this there is little that nodes on one each could do for each other.
const MOST_GPUS: usize = 16;

/// The placement of all nodes on one of `gpus` GPUs each that takes least by [the model of placements](crate::placement); none where nodes
/// follow each other in a chain, or may not run on one.
pub(super) fn each_alone(
    evaluator: &mut Evaluator<'_>,
    gpus: usize,
    effort: f64,
    stop: &Stop,
) -> Result<Option<Numbered>> {
    let problem = evaluator.problem();
    let may_be_alone = problem.nodes.iter().all(|node| node.gpu_counts.first() == Some(&1));
    let has_branches = evaluator.structure().consumers.iter().any(|consumers| consumers.len() > 1);
    if !(2..=MOST_GPUS).contains(&gpus) || !may_be_alone || !has_branches {
        return Ok(None);
    }
    let Ok(placement) = PlacementProblem::of_training(problem, evaluator.costs(), gpus) else {
        return Ok(None);
    };
    // More where nothing else can be chosen.
    let is_all = problem.nodes.iter().all(|node| node.gpu_counts.len() == 1);
    let branches = effort * BRANCHES * if is_all { 50.0 } else { 1.0 };
    let search = PlacementSearch::default().with_branches(branches as u64).with_stop(stop.clone());
    let found = place(&placement, &search)?.arrangement();
    Ok(evaluator.numbered(&found).ok())
}

//! Evaluation of given arrangements.

use super::frontier::{Frontier, found};
use super::stage::SearchStage;
use crate::bound::Bound;
use crate::costs::CostModel;
use crate::evaluator::Evaluator;
use crate::{Arrangement, Error, PlanProblem, Result, Stop};

/// Evaluates arrangements, such as [replicas](Arrangement::replicated) of one for fewer GPUs, and
/// keeps the Pareto-optimal ones within the memory limit. Of arrangements with equal times, the
/// first one is kept. One evaluation per arrangement.
///
/// The lower bound of the result holds for all arrangements with the problem's GPU counts.
///
/// # Errors
/// Those of [`PlanProblem::validate`] and [`Evaluator::evaluate`], [`Error::NoArrangement`] if
/// there is no arrangement, [`Error::MemoryExceeded`] if none is within the memory limit, and
/// [`Error::Stopped`].
pub fn evaluate_arrangements(
    problem: &PlanProblem,
    costs: impl CostModel,
    arrangements: impl IntoIterator<Item = Arrangement>,
    stop: &Stop,
) -> Result<Frontier> {
    let costs: &dyn CostModel = &costs;
    let evaluator = Evaluator::new(problem, costs)?.stopped_by(stop);
    let single_gpu_us = evaluator.single_gpu_us()?;
    let bound = Bound::new(problem, evaluator.structure(), costs);
    let mut stage = SearchStage::new(evaluator, single_gpu_us);
    for arrangement in arrangements {
        let numbered = stage.evaluator.numbered(&arrangement)?;
        stage.evaluate(&numbered)?;
    }
    if stage.archive.starting_points().is_empty() {
        return Err(Error::NoArrangement);
    }
    found(stage, bound)
}

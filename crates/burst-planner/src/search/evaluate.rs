//! The best of arrangements that come from elsewhere.

use super::stage::SearchStage;
use super::{Frontier, found};
use crate::bound::Bound;
use crate::costs::CostModel;
use crate::evaluator::Evaluator;
use crate::{Arrangement, PlanProblem};
use crate::{Error, Result, Stop};

/// Evaluates arrangements, such as [replicas](Arrangement::replicated) of one for fewer GPUs, and keeps the Pareto-optimal ones of them that
/// have room. Nothing else is tried. Of arrangements that take the same, the first one is kept.
///
/// The lower bound of the result is one for all arrangements with the GPU counts of the problem, these and others. One evaluation an arrangement.
///
/// # Errors
/// What [`PlanProblem::validate`] reports, [`Error::NoArrangement`] where there is no arrangement, those of
/// [`Evaluator::evaluate`], [`Error::MemoryExceeded`] where none has room, and [`Error::Stopped`].
pub fn evaluate_arrangements(
    problem: &PlanProblem,
    costs: impl CostModel,
    arrangements: impl IntoIterator<Item = Arrangement>,
    stop: &Stop,
) -> Result<Frontier> {
    let costs: &dyn CostModel = &costs;
    let evaluator = Evaluator::new(problem, costs)?.stopped_by(stop);
    let single_gpu_us = evaluator.single_gpu_us()?;
    let bound = Bound::new(problem, problem.gpus, evaluator.structure(), costs, |_| true);
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

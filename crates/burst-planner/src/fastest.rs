//! The fastest plan under a limit, by any rule and any model of time.

use std::time::Instant;

use crate::search::{LimitRule, SearchOptions, TimeModel, exact, limit_error, per_layer, tolerant};
use crate::{Error, Plan, PlanProblem, Result, evaluate_overlap, overlap};

/// Finds the fastest plan whose amplification is at most `limit`; [`f64::INFINITY`] is no limit.
///
/// [`SearchOptions::time_model`] says how time adds up. What follows is of [`TimeModel::Additive`].
///
/// With `epsilon` 0 the plan is optimal: no other choice within the limit is faster, and none as fast takes less
/// GPU time. With a tolerance its iteration time is at most `1 + epsilon` times the optimum. The limit itself is
/// kept in both cases, to 1e-9 relative.
///
/// # Method
/// The constrained shortest path method of G. Handler and I. Zang (Networks 10, 1980), on the tables of an
/// elimination order instead of paths: a Lagrangian relaxation of the limit, some ten to twenty linear passes,
/// gives a plan within the limit and a lower bound close to it; an exact search over partial plans then closes the
/// gap and drops every partial plan that the bounds show to be hopeless. The gap is small when there are many
/// nodes, so little is left to search, but the worst case is exponential in the number of nodes:
/// [`SearchOptions::max_labels`] bounds it. With a tolerance the exact search is left out where the relaxation
/// is good enough already, as it mostly is for networks of many layers.
///
/// # Errors
/// What [`PlanProblem::validate`] reports; [`Error::BadLimit`](crate::Error::BadLimit) for a limit below 1;
/// [`Error::LimitUnreachable`](crate::Error::LimitUnreachable) with the smallest amplification that can be
/// reached; [`Error::DoesNotFit`](crate::Error::DoesNotFit), [`Error::TooWide`](crate::Error::TooWide) and
/// [`Error::TooManyLabels`](crate::Error::TooManyLabels).
///
/// # Example
/// ```
/// use burst_planner::{NodeOption, PlanProblem, SearchOptions, fastest};
///
/// let mut problem = PlanProblem::new(4);
/// problem.add_node("scales", [NodeOption::new(1, 100.0), NodeOption::new(4, 25.0)]);
/// let plan = fastest(&problem, 1.0, &SearchOptions::default())?;
/// assert_eq!(plan.assignments[0].ranks, 0..4);
/// # Ok::<(), burst_planner::Error>(())
/// ```
pub fn fastest(problem: &PlanProblem, limit: f64, options: &SearchOptions) -> Result<Plan> {
    let start = Instant::now();
    problem.validate()?;
    options.validate()?;
    limit_error(limit)?;
    if options.limit_rule == LimitRule::PerLayer {
        let plan = Plan::from_choice(problem, per_layer::search(problem, limit)?)?;
        return Ok(Plan { search_time: start.elapsed(), ..plan });
    }
    let budget_us = tolerant(limit * problem.single_gpu_time_us());
    let unreachable = |error| match error {
        Error::BudgetUnreachable { smallest_us, .. } => {
            Error::LimitUnreachable { limit, smallest: smallest_us / problem.single_gpu_time_us() }
        }
        other => other,
    };
    let (plan, certified) = match options.time_model {
        TimeModel::Additive | TimeModel::Waves => {
            let (arranged, certified) = exact(problem, budget_us, options).map_err(unreachable)?;
            (Plan::from_schedule(problem, arranged.choice, arranged.schedule)?, certified)
        }
        TimeModel::Overlap => {
            let (choice, certified) = overlap::fastest(problem, budget_us, options).map_err(unreachable)?;
            let totals = evaluate_overlap(problem, &choice)?;
            (Plan { totals, ..Plan::from_choice(problem, choice)? }, certified)
        }
    };
    Ok(Plan { search_time: start.elapsed(), optimality_gap: Some(certified), ..plan })
}

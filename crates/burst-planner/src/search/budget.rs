//! The fastest plan under a budget of GPU time.

use std::time::Instant;

use super::cost::{Cost, Prices};
use super::guide::Guide;
use super::memory::{fits, without_memory_limit};
use super::solver::{Arranged, Found, Objective, Relaxation, Scope, Solver, reaches};
use super::{LimitRule, SearchOptions, TimeModel, limit_error, per_layer, tolerant};
use crate::{Error, Plan, PlanProblem, Result, evaluate_overlap, overlap};

/// A new supporting line has to be this much lower, relatively, to count as progress and not as rounding.
const PROGRESS: f64 = 1e-12;

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
    Ok(Plan { search_time: start.elapsed(), certified_epsilon: Some(certified), ..plan })
}

/// The fastest plan within a budget of GPU time when times add up, and its certificate.
///
/// # Errors
/// [`Error::BudgetUnreachable`], and what [`fastest`] reports.
pub(crate) fn exact(
    problem: &PlanProblem,
    budget_us: f64,
    options: &SearchOptions,
) -> Result<(Arranged, f64)> {
    if let Some(without_limit) = without_memory_limit(problem, options) {
        let (arranged, certified) = exact(&without_limit, budget_us, options)?;
        if fits(problem, &arranged.choice, &arranged.schedule)? {
            return Ok((arranged, certified));
        }
    }
    let solver = Solver::new(problem, 0.0, options)?;
    if let Some(all) = solver.all() {
        let smallest_us = all.last().map_or(f64::INFINITY, |cheapest| cheapest.cost.gpu);
        let best = all.iter().find(|found| found.cost.gpu <= budget_us);
        let best = best.ok_or(Error::BudgetUnreachable { budget_us, smallest_us })?;
        return Ok((solver.arranged(best), solver.certified(0.0)));
    }
    let bracket = Bracket::new(&solver, budget_us)?;
    let (best, certified) = bracket.close(&solver, budget_us)?;
    Ok((solver.arranged(&best), solver.certified(certified)))
}

/// What a Lagrangian relaxation of the budget tells.
pub(crate) struct Bracket {
    /// The fastest plan within the budget that was met.
    pub(crate) within: Found,
    /// No plan within the budget is faster.
    pub(crate) bound_us: f64,
    /// All plans met on the way.
    pub(crate) met: Vec<Found>,
    /// The relaxation that gave the bound; `None` when the fastest plan of all is within the budget.
    relaxed: Option<Relaxation>,
}

impl Bracket {
    /// # Errors
    /// [`Error::BudgetUnreachable`].
    pub(crate) fn new(solver: &Solver, budget_us: f64) -> Result<Self> {
        let fast = solver.extreme(&Objective::Time)?;
        let fastest_us = fast.cost.time;
        if fast.cost.gpu <= budget_us {
            return Ok(Self { within: fast, bound_us: fastest_us, met: vec![fast], relaxed: None });
        }
        let cheap = solver.extreme(&Objective::GpuTime)?;
        if cheap.cost.gpu > budget_us {
            return Err(Error::BudgetUnreachable { budget_us, smallest_us: cheap.cost.gpu });
        }
        let (mut beyond, mut within) = (fast, cheap);
        let mut met = vec![fast, cheap];
        // Turn the line through both points until it supports all plans: the best bound there is at the budget.
        let relaxed = loop {
            let relaxed = solver.relax(&solver.tables, slope(&beyond, &within));
            let Some(best) = below(&relaxed, &beyond, &within) else { break relaxed };
            met.push(best);
            let side = if best.cost.gpu <= budget_us { &mut within } else { &mut beyond };
            *side = best;
        };
        let bound_us = (relaxed.bound - relaxed.prices.gpu * budget_us) / relaxed.prices.time;
        Ok(Self { within, bound_us: bound_us.max(fastest_us), met, relaxed: Some(relaxed) })
    }

    /// What a GPU-microsecond is worth at the bound, microseconds.
    pub(crate) fn price(&self) -> f64 {
        self.relaxed.as_ref().map_or(0.0, |relaxed| relaxed.prices.gpu / relaxed.prices.time)
    }

    /// Searches exactly what the relaxation leaves open: the best plan, and how far from optimal it can be, relatively.
    fn close(&self, solver: &Solver, budget_us: f64) -> Result<(Found, f64)> {
        let Some(relaxed) = &self.relaxed else { return Ok((self.within, 0.0)) };
        let within = self.within;
        let gap = |searched_us: f64| (within.cost.time / searched_us - 1.0).max(0.0);
        if gap(self.bound_us) <= solver.epsilon() {
            return Ok((within, gap(self.bound_us)));
        }
        let price = Prices { memory: 0.0, ..relaxed.prices };
        let guide = Guide::new(&solver.tables, relaxed.prices);
        let corner = |time| Cost { time, gpu: budget_us, memory: 0.0 };
        let tables = solver.shrunk(&solver.tables, &guide, price.of(corner(within.cost.time)));
        let scope = Scope::new(solver, &tables, Guide::new(&tables, relaxed.prices));
        let mut searched_us = self.bound_us;
        for reach in reaches(self.bound_us, within.cost.time) {
            if gap(searched_us) <= solver.epsilon() {
                return Ok((within, gap(searched_us)));
            }
            let found = scope.window(corner(reach), price.of(corner(reach)))?;
            let mut found = found.into_iter().filter(|found| found.cost.gpu <= budget_us);
            if let Some(best) = found.next() {
                return Ok((best, 0.0));
            }
            searched_us = reach;
        }
        Ok((within, 0.0))
    }
}

/// Prices under which both points cost the same; `cheap` takes longer and less GPU time.
pub(super) fn slope(fast: &Found, cheap: &Found) -> Prices {
    let time = fast.cost.gpu - cheap.cost.gpu;
    let gpu = cheap.cost.time - fast.cost.time;
    // Negative by rounding where both take the same time.
    Prices { time: 1.0, gpu: (gpu / time).max(0.0), memory: 0.0 }
}

/// The plan that the relaxation found, if it is between both ends and below the line through them.
///
/// Where memory has a price that plan is not optimal, and may lie anywhere.
pub(super) fn below(relaxed: &Relaxation, fast: &Found, cheap: &Found) -> Option<Found> {
    let price = Prices { memory: 0.0, ..relaxed.prices };
    let line = price.of(fast.cost).min(price.of(cheap.cost));
    relaxed
        .best
        .filter(|best| price.of(best.cost) < line * (1.0 - PROGRESS) && best.lies_between(fast, cheap))
}

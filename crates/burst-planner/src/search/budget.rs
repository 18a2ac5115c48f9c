//! The fastest plan under a budget of GPU time.

use super::SearchOptions;
use super::cost::{Cost, Prices};
use super::guide::Guide;
use super::memory::{fits, without_memory_limit};
use super::solver::{Arranged, Found, Objective, Relaxation, Scope, Solver, reaches};
use crate::{Error, PlanProblem, Result};

/// A new supporting line has to be this much lower, relatively, to count as progress and not as rounding.
const PROGRESS: f64 = 1e-12;

/// The fastest plan within a budget of GPU time when times add up, and its certificate.
///
/// # Errors
/// [`Error::BudgetUnreachable`], and what [`fastest`](crate::fastest()) reports.
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

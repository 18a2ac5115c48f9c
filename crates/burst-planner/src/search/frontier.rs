//! All plans worth choosing from: the Pareto frontier of iteration time and GPU time.

use std::time::{Duration, Instant};

use super::budget::{is_below, slope};
use super::cost::{Cost, Prices};
use super::labels::{Slack, keep_nondominated};
use super::solver::{Candidate, Objective, Relaxation, Solver};
use super::window::ROUNDING;
use super::{SearchOptions, limit_error, tolerant};
use crate::{Error, Plan, PlanProblem, Result, Totals};

/// The first strip of a triangle that is searched is this part of it.
const STRIPS: f64 = 16.0;

/// The plans that no other plan beats in both times.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    points: Vec<FrontierPoint>,
    single_gpu_us: f64,
    certified_epsilon: f64,
    search_time: Duration,
}

/// One plan of a [`Frontier`].
#[derive(Debug, Clone, PartialEq)]
pub struct FrontierPoint {
    /// `choice[n]` is the index of the option that node `n` takes.
    pub choice: Vec<usize>,
    /// What an iteration costs.
    pub totals: Totals,
    /// The largest GPU count of any node.
    pub gpus: usize,
}

impl Frontier {
    /// The plans, fastest first; iteration times rise and GPU times fall strictly. Never empty.
    #[must_use]
    pub fn points(&self) -> &[FrontierPoint] {
        &self.points
    }

    /// For every plan there is, a point has both times at most `1 + certified_epsilon` times as large. 0 is the
    /// exact frontier; otherwise at most the tolerance that was asked for, and often less.
    #[must_use]
    pub fn certified_epsilon(&self) -> f64 {
        self.certified_epsilon
    }

    /// How long the search took.
    #[must_use]
    pub fn search_time(&self) -> Duration {
        self.search_time
    }

    /// The fastest point whose amplification is at most `limit`, to 1e-9 relative. Logarithmic time.
    ///
    /// On a frontier with a tolerance this is the best of the points, which all keep the limit exactly; a plan
    /// between two points may be better by more than the tolerance. [`fastest`](crate::fastest) looks there, too.
    ///
    /// # Errors
    /// [`Error::BadLimit`] for a limit below 1, [`Error::LimitUnreachable`] where no plan keeps it.
    pub fn fastest_within(&self, limit: f64) -> Result<&FrontierPoint> {
        limit_error(limit)?;
        self.within(tolerant(limit * self.single_gpu_us)).ok_or_else(|| Error::LimitUnreachable {
            limit,
            smallest: self.points.last().map_or(f64::INFINITY, |cheapest| cheapest.totals.amplification),
        })
    }

    /// The fastest point that takes at most `budget_us` GPU-microseconds, to 1e-9 relative. Logarithmic time.
    ///
    /// # Errors
    /// [`Error::BadBudget`] for a negative budget, [`Error::BudgetUnreachable`] where no plan keeps it.
    pub fn fastest_within_gpu_time_us(&self, budget_us: f64) -> Result<&FrontierPoint> {
        if budget_us.is_nan() || budget_us < 0.0 {
            return Err(Error::BadBudget { budget_us });
        }
        self.within(tolerant(budget_us)).ok_or_else(|| Error::BudgetUnreachable {
            budget_us,
            smallest_us: self.points.last().map_or(f64::INFINITY, |cheapest| cheapest.totals.gpu_time_us),
        })
    }

    fn within(&self, budget_us: f64) -> Option<&FrontierPoint> {
        self.points.get(self.points.partition_point(|point| point.totals.gpu_time_us > budget_us))
    }
}

impl FrontierPoint {
    /// Spells the point out. `problem` is the one that the frontier was searched for.
    ///
    /// # Errors
    /// What [`Plan::from_choice`] reports for a problem that the point does not belong to.
    pub fn plan(&self, problem: &PlanProblem) -> Result<Plan> {
        Plan::from_choice(problem, self.choice.clone())
    }
}

/// Finds the Pareto frontier of iteration time and GPU time.
///
/// With `epsilon` 0 it is exact: every choice is matched or beaten in both times by a point. With a tolerance every
/// choice is matched up to a factor of `1 + epsilon` in both. The fastest and the cheapest plan are exact always.
///
/// # Method
/// The two-phase method (E. Ulungu and J. Teghem, Foundations of Computing and Decision Sciences 20, 1995). First
/// the supported plans, those on the convex hull: minimising `time + price * GPU time` is a linear pass over the
/// tables, and each pass either finds a new plan between two known ones or proves that no plan lies below the line
/// through them. Between two neighbours further plans can only lie in a triangle; the second phase searches it
/// exactly, strip by strip from the line upwards, as far as the tolerance does not cover it.
///
/// The first phase takes two linear passes for each supported plan. The second keeps partial plans, few where triangles
/// are flat, as they are for networks of many layers; but an exact frontier can have exponentially many points.
/// [`SearchOptions::max_labels`] bounds the work of one strip.
///
/// # Errors
/// What [`PlanProblem::validate`] reports; [`Error::DoesNotFit`], [`Error::TooWide`], [`Error::TooManyLabels`].
pub fn frontier(problem: &PlanProblem, options: &SearchOptions) -> Result<Frontier> {
    let start = Instant::now();
    let solver = Solver::new(problem, options)?;
    let fast = solver.extreme(&Objective::Time)?;
    let cheap = solver.extreme(&Objective::GpuTime)?;
    let mut search = Search { solver: &solver, found: vec![fast.clone(), cheap.clone()], certified: 0.0 };
    search.between(fast, cheap)?;
    let Search { mut found, certified, .. } = search;
    let least = |value: fn(&Candidate) -> f64| found.iter().map(value).fold(f64::INFINITY, f64::min);
    let slack = Slack {
        time: ROUNDING * least(|candidate| candidate.totals.iteration_us),
        gpu: ROUNDING * least(|candidate| candidate.totals.gpu_time_us),
    };
    keep_nondominated(&mut found, Candidate::cost, slack);
    Ok(Frontier {
        points: found.into_iter().map(|candidate| point(solver.problem(), candidate)).collect(),
        single_gpu_us: problem.single_gpu_time_us(),
        certified_epsilon: certified,
        search_time: start.elapsed(),
    })
}

struct Search<'s, 'p> {
    solver: &'s Solver<'p>,
    found: Vec<Candidate>,
    certified: f64,
}

impl Search<'_, '_> {
    /// Finds what lies between a fast plan and a cheap one.
    fn between(&mut self, fast: Candidate, cheap: Candidate) -> Result<()> {
        let epsilon = self.solver.epsilon();
        let mut open = vec![(fast, cheap)];
        while let Some((fast, cheap)) = open.pop() {
            let (a, b) = (&fast.totals, &cheap.totals);
            // One end may be better than the other in both, to rounding.
            if b.iteration_us <= a.iteration_us * (1.0 + ROUNDING)
                || a.gpu_time_us <= b.gpu_time_us * (1.0 + ROUNDING)
            {
                continue;
            }
            let relaxed = self.solver.relax(slope(&fast, &cheap))?;
            // A plan that neither end covers is better than both in one time each, so it lies below this corner,
            // shrunk by the tolerance, and above the bound.
            let covered = relaxed.prices.of(corner(&fast, &cheap)) / relaxed.bound - 1.0;
            if covered <= epsilon.max(ROUNDING) {
                self.certified = self.certified.max(covered.min(epsilon));
                continue;
            }
            if is_below(&relaxed, &fast, &cheap) {
                self.found.push(relaxed.best.clone());
                open.push((relaxed.best.clone(), cheap));
                open.push((fast, relaxed.best));
                continue;
            }
            self.triangle(&relaxed, fast, cheap)?;
        }
        Ok(())
    }

    /// Finds what lies above the line through two neighbours on the convex hull.
    ///
    /// Most of it lies close to the line, and every plan found there cuts the triangle into two smaller ones. So a
    /// strip along the line is searched first, and then only those triangles further that reach beyond it.
    fn triangle(&mut self, relaxed: &Relaxation, fast: Candidate, cheap: Candidate) -> Result<()> {
        let tolerance = 1.0 + self.solver.epsilon();
        let guide = self.solver.guide(relaxed);
        let price = Prices { memory: 0.0, ..relaxed.prices };
        let strip = (price.of(corner(&fast, &cheap)) - relaxed.bound) / STRIPS;
        let mut open = vec![Gap { fast, cheap, searched: relaxed.bound, strip }];
        while let Some(Gap { fast, cheap, searched, strip }) = open.pop() {
            let corner = corner(&fast, &cheap);
            if price.of(corner) <= searched * (1.0 + ROUNDING) {
                continue;
            }
            // What neither end covers lies below the corner also when it is shrunk by the tolerance.
            let corner = Cost { time: corner.time / tolerance, gpu: corner.gpu / tolerance, memory: 0.0 };
            self.certified =
                self.certified.max(self.solver.epsilon().min(price.of(corner) * tolerance / searched - 1.0));
            if price.of(corner) <= searched * (1.0 + ROUNDING) {
                continue;
            }
            let reach = price.of(corner).min(searched + strip);
            let mut found = self.solver.window(&guide, corner, reach)?;
            found.retain(|one| one.lies_between(&fast, &cheap));
            // The farther from the line, the fewer plans are worth keeping; a strip without any was too narrow.
            let strip = if found.is_empty() { 4.0 * strip } else { 2.0 * strip };
            self.found.extend(found.iter().cloned());
            let mut last = fast;
            for next in found.into_iter().chain([cheap]) {
                open.push(Gap { fast: last, cheap: next.clone(), searched: reach, strip });
                last = next;
            }
        }
        Ok(())
    }
}

/// Two plans between which there may be more.
struct Gap {
    fast: Candidate,
    cheap: Candidate,
    /// All plans between them are known that cost no more than this under the prices of the triangle.
    searched: f64,
    /// How far to search beyond that.
    strip: f64,
}

/// What is slower than the cheap plan or costlier than the fast one is of no use between them.
fn corner(fast: &Candidate, cheap: &Candidate) -> Cost {
    Cost { time: cheap.totals.iteration_us, gpu: fast.totals.gpu_time_us, memory: 0.0 }
}

fn point(problem: &PlanProblem, Candidate { choice, totals }: Candidate) -> FrontierPoint {
    let gpus =
        problem.nodes.iter().zip(&choice).map(|(node, &option)| node.options[option].gpus).max().unwrap_or(0);
    FrontierPoint { choice, totals, gpus }
}

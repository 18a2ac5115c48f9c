//! All Pareto-optimal plans: the frontier of iteration time and GPU time.

use std::rc::Rc;
use std::time::{Duration, Instant};

use super::budget::{below, slope};
use super::cost::{Cost, Prices};
use super::guide::Guide;
use super::labels::{Slack, keep_nondominated};
use super::memory::{fits, without_memory_limit};
use super::solver::{Arranged, Found, Objective, Relaxation, Scope, Solver};
use super::tables::Tables;
use super::window::ROUNDING;
use super::{SearchOptions, TimeModel};
use crate::{Error, Plan, PlanProblem, Result, Schedule, Totals, evaluate, evaluate_schedule, layout};

/// Tables are made anew when what there is to win has become this much smaller.
const SHRINK: f64 = 0.2;

/// The first time that is done when what there is to win is this many times the share of one bucket: before that, hardly
/// anything can be left out.
const SHRINK_FROM: f64 = 50.0;

/// The first strip of a triangle that is searched is this part of it.
const STRIPS: f64 = 32.0;

/// The farther from the line, the fewer plans are worth keeping: each strip is this much wider than the one before.
const STRIP_GROWTH: f64 = 2.0;

/// The plans that no other plan beats in both times.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontier {
    pub(super) points: Vec<FrontierPoint>,
    pub(super) single_gpu_us: f64,
    optimality_gap: f64,
    search_time: Duration,
}

/// One plan of a [`Frontier`].
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct FrontierPoint {
    /// `choice[n]` is the index of the option that node `n` takes.
    pub choice: Vec<usize>,
    /// Which branches run at once.
    pub schedule: Schedule,
    /// What an iteration costs.
    pub totals: Totals,
    /// How many ranks it needs.
    pub gpus: usize,
}

impl Frontier {
    /// The plans, fastest first; iteration times rise and GPU times fall strictly. Never empty.
    #[must_use]
    pub fn points(&self) -> &[FrontierPoint] {
        &self.points
    }

    /// For every plan there is, a point has both times at most `1 + optimality_gap` times as large. 0 is the
    /// exact frontier; otherwise at most the tolerance that was asked for, and often less.
    #[must_use]
    pub fn optimality_gap(&self) -> f64 {
        self.optimality_gap
    }

    /// How long the search took.
    #[must_use]
    pub fn search_time(&self) -> Duration {
        self.search_time
    }
}

impl FrontierPoint {
    /// Spells the point out. `problem` is the one that the frontier was searched for.
    ///
    /// # Errors
    /// What [`Plan::from_schedule`] reports for a problem that the point does not belong to.
    pub fn plan(&self, problem: &PlanProblem) -> Result<Plan> {
        Plan::from_schedule(problem, self.choice.clone(), self.schedule.clone())
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
/// What [`PlanProblem::validate`] reports; [`Error::DoesNotFit`], [`Error::TooWide`], [`Error::TooManyLabels`];
/// [`Error::NoFrontierWithOverlap`].
pub fn frontier(problem: &PlanProblem, options: &SearchOptions) -> Result<Frontier> {
    search(problem, options, Phases::Both)
}

/// Finds the supported points of the frontier: those that some price of GPU time makes the best.
///
/// They are the corners of the frontier's convex hull, at most as many as there are options in all, where the whole
/// frontier can have exponentially many points. For a network of many layers they are close together, and
/// [`Frontier::optimality_gap`] says how close: what lies between them is not looked for. With a tolerance, corners that
/// others cover within it are left out. This is the first phase of [`frontier`]: two linear passes for each point.
///
/// # Errors
/// As [`frontier`].
pub fn supported(problem: &PlanProblem, options: &SearchOptions) -> Result<Frontier> {
    search(problem, options, Phases::First)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phases {
    First,
    Both,
}

fn search(problem: &PlanProblem, options: &SearchOptions, phases: Phases) -> Result<Frontier> {
    let start = Instant::now();
    if options.time_model == TimeModel::Overlap {
        return Err(Error::NoFrontierWithOverlap);
    }
    if let Some(without_limit) = without_memory_limit(problem, options) {
        let found = search(&without_limit, options, phases)?;
        let fits = |point: &FrontierPoint| fits(problem, &point.choice, &point.schedule);
        if found.points.iter().map(fits).collect::<Result<Vec<bool>>>()?.into_iter().all(|fits| fits) {
            return Ok(found);
        }
    }
    let solver = Solver::new(problem, options.epsilon / 2.0, options)?;
    if let Some(all) = solver.all() {
        return frontier_of(&solver, all, 0.0, start);
    }
    let fast = solver.extreme(&Objective::Time)?;
    let cheap = solver.extreme(&Objective::GpuTime)?;
    let mut search = Search { solver: &solver, phases, found: vec![fast, cheap], certified: 0.0 };
    search.between(fast, cheap)?;
    let Search { mut found, certified, .. } = search;
    let least = |value: fn(&Found) -> f64| found.iter().map(value).fold(f64::INFINITY, f64::min);
    let slack = Slack {
        time: ROUNDING * least(|found| found.cost.time),
        gpu: ROUNDING * least(|found| found.cost.gpu),
    };
    keep_nondominated(&mut found, |found| Cost { memory: 0.0, ..found.cost }, slack);
    frontier_of(&solver, &found, certified, start)
}

fn frontier_of(solver: &Solver, found: &[Found], searched: f64, start: Instant) -> Result<Frontier> {
    let points = found.iter().map(|found| point(solver.problem(), solver.arranged(found)));
    Ok(Frontier {
        points: points.collect::<Result<_>>()?,
        single_gpu_us: solver.problem().single_gpu_time_us(),
        optimality_gap: solver.certified(searched),
        search_time: start.elapsed(),
    })
}

struct Search<'s, 'p> {
    solver: &'s Solver<'p>,
    phases: Phases,
    found: Vec<Found>,
    certified: f64,
}

/// Two plans between which there may be more.
struct Gap {
    fast: Found,
    cheap: Found,
    /// No plan lies below the lines that the two were found by.
    lines: (Line, Line),
    /// What plans between them are made of.
    tables: Rc<Tables>,
    /// How much there was to win, relatively, when the tables were made.
    made_for: f64,
}

/// No plan costs less than the bound under these prices of time and GPU time.
#[derive(Clone, Copy)]
struct Line {
    prices: Prices,
    bound: f64,
}

impl Line {
    /// What two lines say about prices between theirs.
    fn between(self, other: Self, prices: Prices) -> f64 {
        let determinant = |a: Prices, b: Prices| a.time * b.gpu - a.gpu * b.time;
        let whole = determinant(self.prices, other.prices);
        if whole <= 0.0 {
            return 0.0;
        }
        let share = determinant(prices, other.prices) / whole;
        let other_share = determinant(self.prices, prices) / whole;
        if share >= 0.0 && other_share >= 0.0 { share * self.bound + other_share * other.bound } else { 0.0 }
    }
}

impl Search<'_, '_> {
    /// Finds what lies between the fastest plan and the cheapest one.
    fn between(&mut self, fast: Found, cheap: Found) -> Result<()> {
        let epsilon = self.solver.epsilon();
        let lines = (
            Line { prices: Prices::TIME, bound: fast.cost.time },
            Line { prices: Prices::GPU, bound: cheap.cost.gpu },
        );
        let made_for = SHRINK_FROM / self.solver.tables.buckets.len() as f64;
        let mut open =
            vec![Gap { fast, cheap, lines, tables: Rc::new(self.solver.tables.clone()), made_for }];
        while let Some(Gap { fast, cheap, lines, mut tables, mut made_for }) = open.pop() {
            // One end may be better than the other in both, to rounding.
            if cheap.cost.time <= fast.cost.time * (1.0 + ROUNDING)
                || fast.cost.gpu <= cheap.cost.gpu * (1.0 + ROUNDING)
            {
                continue;
            }
            let price = slope(&fast, &cheap);
            // A plan that neither end covers is better than both in one time each, so it lies below this corner,
            // shrunk by the tolerance, and above the bound.
            let reach = price.of(corner(&fast, &cheap));
            let mut is_covered = |bound: f64| {
                let covered = reach / bound - 1.0;
                let is_covered = covered <= epsilon.max(ROUNDING);
                if is_covered {
                    self.certified = self.certified.max(covered.min(epsilon));
                }
                is_covered
            };
            if is_covered(lines.0.between(lines.1, price)) {
                continue;
            }
            let relaxed = self.solver.relax(&tables, price);
            if is_covered(relaxed.bound) {
                continue;
            }
            let covered = reach / relaxed.bound - 1.0;
            let below = below(&relaxed, &fast, &cheap);
            if below.is_none() && self.phases == Phases::First {
                self.certified = self.certified.max(covered);
                continue;
            }
            if covered < SHRINK * made_for || below.is_none() {
                let guide = Guide::new(&tables, relaxed.prices);
                tables = Rc::new(self.solver.shrunk(&tables, &guide, reach / (1.0 + epsilon)));
                made_for = covered;
                self.certified = self.certified.max(epsilon);
            }
            if let Some(best) = below {
                self.found.push(best);
                let line = Line { prices: price, bound: relaxed.bound };
                let (left, right) = ((lines.0, line), (line, lines.1));
                open.push(Gap { fast: best, cheap, lines: right, tables: tables.clone(), made_for });
                open.push(Gap { fast, cheap: best, lines: left, tables, made_for });
            } else {
                self.triangle(&relaxed, &tables, fast, cheap)?;
            }
        }
        Ok(())
    }

    /// Finds what lies above the line through two neighbours on the convex hull.
    ///
    /// Most of it lies close to the line, and every plan found there cuts the triangle into two smaller ones. So a
    /// strip along the line is searched first, and then only those triangles further that reach beyond it.
    fn triangle(&mut self, relaxed: &Relaxation, tables: &Tables, fast: Found, cheap: Found) -> Result<()> {
        let tolerance = 1.0 + self.solver.epsilon();
        let guide = Guide::new(tables, relaxed.prices);
        let price = Prices { memory: 0.0, ..relaxed.prices };
        // What neither end covers lies below the corner also when it is shrunk by the tolerance.
        let end = |fast: &Found, cheap: &Found| {
            let corner = corner(fast, cheap);
            Cost { time: corner.time / tolerance, gpu: corner.gpu / tolerance, memory: 0.0 }
        };
        let mut searched = relaxed.bound;
        let mut strip = (price.of(end(&fast, &cheap)) - searched) / STRIPS;
        let mut open = vec![(fast, cheap)];
        loop {
            open.retain(|(fast, cheap)| price.of(end(fast, cheap)) > searched * (1.0 + ROUNDING));
            let farthest = open.iter().map(|(fast, cheap)| price.of(end(fast, cheap))).fold(0.0, f64::max);
            if open.is_empty() {
                return Ok(());
            }
            let reach = farthest.min(searched + strip);
            let tables = self.solver.shrunk(tables, &guide, reach);
            let scope = Scope::new(self.solver, &tables, Guide::new(&tables, relaxed.prices));
            for (fast, cheap) in std::mem::take(&mut open) {
                let mut found = scope.window(end(&fast, &cheap), reach)?;
                found.retain(|one| one.lies_between(&fast, &cheap));
                // Only those are kept that it takes to cover all: what is not found is dominated by one that was, or
                // lies beyond the strip.
                let found = covering(&found, &fast, &cheap, tolerance);
                self.found.extend_from_slice(&found);
                let ends = found.iter().copied().chain([cheap]);
                open.extend(std::iter::once(fast).chain(found.iter().copied()).zip(ends));
            }
            searched = reach;
            strip *= STRIP_GROWTH;
        }
    }
}

/// A part of the plans between two ends which, with the ends, covers all of them up to a factor of `tolerance`.
fn covering(found: &[Found], fast: &Found, cheap: &Found, tolerance: f64) -> Vec<Found> {
    let mut kept = Vec::new();
    let mut last = *fast;
    let mut index = 0;
    while index < found.len() {
        let uncovered = &found[index];
        if last.cost.gpu <= uncovered.cost.gpu * tolerance {
            index += 1;
            continue;
        }
        // The farthest one that still covers it, and with it all up to there.
        let latest = uncovered.cost.time * tolerance;
        if cheap.cost.time <= latest {
            break;
        }
        index += found[index..].partition_point(|one| one.cost.time <= latest);
        last = found[index - 1];
        kept.push(last);
    }
    kept
}

/// What is slower than the cheap plan or costlier than the fast one is of no use between them.
fn corner(fast: &Found, cheap: &Found) -> Cost {
    Cost { time: cheap.cost.time, gpu: fast.cost.gpu, memory: 0.0 }
}

fn point(problem: &PlanProblem, Arranged { choice, schedule }: Arranged) -> Result<FrontierPoint> {
    // The plain sum and the number of GPUs where nothing runs at once: checking and laying out each plan takes time.
    let (totals, gpus) = if schedule.regions.is_empty() {
        let gpus = problem.nodes.iter().zip(&choice).map(|(node, &option)| node.options[option].gpus);
        (evaluate(problem, &choice)?, gpus.max())
    } else {
        let ranks = layout(problem, &choice, &schedule)?.ranks;
        (evaluate_schedule(problem, &choice, &schedule)?, ranks.iter().map(|ranks| ranks.end).max())
    };
    Ok(FrontierPoint { choice, schedule, totals, gpus: gpus.unwrap_or(0) })
}

//! What both searches are made of: relaxations, which are cheap and give bounds, and windows, which are exact.

use std::cell::RefCell;

use super::cost::{Cost, Prices, Weights};
use super::elimination::{Elimination, can_bind, smallest};
use super::guide::{Guide, cheapest};
use super::history::History;
use super::labels::{Slack, keep_nondominated};
use super::tables::Tables;
use super::window::{self, Fence, ROUNDING};
use super::{SearchOptions, TimeModel, loads, shrink};
use crate::waves::{RegionTable, RegionTables, TableOptions};
use crate::{Error, PlanProblem, Region, Result, Schedule, regions};

/// Prices of memory that are tried to tighten one bound.
const MEMORY_PRICES: usize = 24;

/// A complete choice that respects the memory limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) cost: Cost,
    /// Its entry in the history.
    history: u32,
}

impl Found {
    /// Whether it is a better compromise than either end: faster than `cheap` and cheaper than `fast`, by more than
    /// rounding.
    pub(crate) fn lies_between(&self, fast: &Self, cheap: &Self) -> bool {
        self.cost.gpu < fast.cost.gpu * (1.0 - ROUNDING)
            && self.cost.time < cheap.cost.time * (1.0 - ROUNDING)
    }
}

/// What minimising one priced sum tells.
pub(crate) struct Relaxation {
    /// The prices of time and GPU time asked for, and the price of memory that gives the best bound.
    pub(crate) prices: Prices,
    /// No choice within the memory limit costs less, priced by time and GPU time. Infinite when there is none.
    pub(crate) bound: f64,
    /// The best choice within the memory limit that was met, if any; optimal when memory does not bind.
    pub(crate) best: Option<Found>,
}

pub(crate) enum Objective {
    Time,
    GpuTime,
}

/// Which option every node takes, and which branches run at once.
pub(crate) struct Arranged {
    pub(crate) choice: Vec<usize>,
    pub(crate) schedule: Schedule,
}

pub(crate) struct Solver<'p> {
    problem: &'p PlanProblem,
    options: SearchOptions,
    pub(crate) tables: Tables,
    history: RefCell<History>,
    /// Regions whose branches can run at once.
    waves: Option<Waves>,
    /// The memory limit where it can bind at all and is the same for all ranks.
    memory_limit: Option<f64>,
    /// Sums in different orders differ by rounding; what differs by no more is the same.
    slack: Slack,
    /// What of the tolerance has gone into tables of regions, and what is left for the search.
    spent_epsilon: f64,
    epsilon: f64,
    /// All Pareto-optimal plans, where memory by rank made it necessary to find them at once.
    all: Option<Vec<Found>>,
}

/// Regions with their alternatives.
struct Waves {
    regions: Vec<Region>,
    tables: Vec<RegionTable>,
    /// The tolerance of the tables.
    epsilon: f64,
}

impl Waves {
    /// `None` when nothing can run at once.
    fn new(problem: &PlanProblem, epsilon: f64, options: &SearchOptions) -> Result<Option<Self>> {
        let regions = regions(problem)?;
        let with_memory = problem.memory_limit_bytes.is_some_and(|limit| can_bind(problem, limit));
        let max_labels = options.max_labels;
        let table_options = TableOptions { epsilon, max_labels, with_memory };
        let tables = RegionTables::new(problem, &regions, &table_options)?.tables;
        Ok(if tables.is_empty() { None } else { Some(Self { regions, tables, epsilon }) })
    }
}

impl<'p> Solver<'p> {
    /// A solver of the additive model, with branches at the same time if the options say so.
    ///
    /// Tables of regions may take `table_epsilon` of the tolerance.
    pub(crate) fn new(problem: &'p PlanProblem, table_epsilon: f64, options: &SearchOptions) -> Result<Self> {
        problem.validate()?;
        options.validate()?;
        let waves = match options.time_model {
            TimeModel::Waves => Waves::new(problem, table_epsilon, options)?,
            TimeModel::Additive | TimeModel::Overlap => None,
        };
        Self::prepare(problem, &vec![Weights::ADDITIVE; problem.nodes.len()], waves, options)
    }

    /// A solver of the additive model with weights on the parts of each node's time.
    pub(crate) fn weighted(
        problem: &'p PlanProblem,
        weights: &[Weights],
        options: &SearchOptions,
    ) -> Result<Self> {
        Self::prepare(problem, weights, None, options)
    }

    fn prepare(
        problem: &'p PlanProblem,
        weights: &[Weights],
        waves: Option<Waves>,
        options: &SearchOptions,
    ) -> Result<Self> {
        options.stop.check()?;
        let regions = waves.as_ref().map_or(&[][..], |waves| &waves.tables);
        let Elimination { tables, decisions, memory_limit } = Elimination::new(problem, weights, regions)?;
        let steps = window::steps(&tables) as f64;
        let mut history = History::new(decisions.clone());
        let mut all = None;
        if let (Some(limit), false) = (memory_limit, regions.is_empty()) {
            let (history, most) = (&mut history, options.max_labels);
            let found = loads::search(problem, &tables, regions, &decisions, history, limit, most)
                .map_err(|loads::TooManyLabels| too_many_labels(options))?;
            if found.is_empty() {
                let largest = smallest(problem).into_iter().take(5).collect();
                return Err(Error::DoesNotFitInWaves { limit_bytes: limit, largest });
            }
            all = Some(found.into_iter().map(|(cost, history)| Found { cost, history }).collect());
        }
        let tables = shrink::fold(tables, &mut history);
        // Nothing is faster than the cheapest choice, so a share of its time is a share of any plan's.
        let mut share = |prices| {
            ROUNDING * cheapest(&tables, prices, &mut history).map_or(0.0, |(value, ..)| value) / steps
        };
        let slack = Slack { time: share(Prices::TIME), gpu: share(Prices::GPU) };
        if let Some(all) = &mut all {
            keep_nondominated(all, |found: &Found| found.cost, slack);
        }
        let spent = waves.as_ref().map_or(0.0, |waves| waves.epsilon);
        let left = (1.0 + options.epsilon) / (1.0 + spent) - 1.0;
        Ok(Self {
            problem,
            options: options.clone(),
            tables,
            history: history.into(),
            memory_limit: memory_limit.filter(|_| waves.is_none()).map(|limit| limit as f64),
            slack,
            epsilon: if spent > 0.0 { left } else { options.epsilon },
            spent_epsilon: spent,
            waves,
            all,
        })
    }

    /// All Pareto-optimal plans, by rising time, where they are known already.
    pub(crate) fn all(&self) -> Option<&[Found]> {
        self.all.as_deref()
    }

    /// The tolerance that holds end to end when the search kept one.
    pub(crate) fn certified(&self, searched: f64) -> f64 {
        if self.spent_epsilon == 0.0 {
            return searched;
        }
        // Never above what was asked for, but for rounding.
        ((1.0 + searched) * (1.0 + self.spent_epsilon) - 1.0).min(self.options.epsilon)
    }

    pub(crate) fn arranged(&self, found: &Found) -> Arranged {
        let mut arranged =
            Arranged { choice: vec![0; self.problem.nodes.len()], schedule: Schedule::default() };
        for decision in self.history.borrow().decisions(found.history) {
            let (variable, value) = (decision.variable as usize, decision.value as usize);
            if let Some(option) = arranged.choice.get_mut(variable) {
                *option = value;
            } else if let Some(waves) = &self.waves {
                let region = &waves.tables[variable - self.problem.nodes.len()];
                let expansion = region.expand(&waves.regions, value);
                for (node, option) in expansion.choices {
                    arranged.choice[node] = option;
                }
                arranged.schedule.regions.extend(expansion.schedules);
            }
        }
        arranged.schedule.regions.sort_by_key(|region| (region.fork, region.join));
        arranged
    }

    pub(crate) fn problem(&self) -> &'p PlanProblem {
        self.problem
    }

    /// The tolerance of the search.
    pub(crate) fn epsilon(&self) -> f64 {
        self.epsilon
    }

    /// The best choice for one criterion, whatever the tolerance; among equals the one that is better in the other.
    ///
    /// # Errors
    /// [`Error::TooManyLabels`], which only a memory limit can lead to.
    pub(crate) fn extreme(&self, objective: &Objective) -> Result<Found> {
        let (prices, other) = match objective {
            Objective::Time => (Prices::TIME, Prices::GPU),
            Objective::GpuTime => (Prices::GPU, Prices::TIME),
        };
        let relaxed = self.relax(&self.tables, prices);
        // The memory limit was found to be reachable.
        let Some(best) = relaxed.best else { return Err(self.too_many_labels()) };
        let guide = Guide::new(&self.tables, relaxed.prices);
        if self.memory_limit.is_none() {
            // Choices made of optimal parts alone are optimal.
            let bound = relaxed.bound + prices.time * self.slack.time + prices.gpu * self.slack.gpu;
            let optimal = self.shrunk(&self.tables, &guide, bound);
            return Ok(self.relax(&optimal, other).best.unwrap_or(best));
        }
        let scope = Scope::new(self, &self.tables, guide);
        let unlimited = Cost { time: f64::INFINITY, gpu: f64::INFINITY, memory: 0.0 };
        for reach in reaches(relaxed.bound, prices.of(best.cost)) {
            let corner = match objective {
                Objective::Time => Cost { time: reach, ..unlimited },
                Objective::GpuTime => Cost { gpu: reach, ..unlimited },
            };
            let found = scope.window(corner, reach)?;
            let best = match objective {
                Objective::Time => found.first(),
                Objective::GpuTime => found.last(),
            };
            if let Some(best) = best {
                return Ok(*best);
            }
        }
        Ok(best)
    }

    /// Minimises a priced sum of time and GPU time.
    ///
    /// With a binding memory limit memory gets a price, too (Lagrangian relaxation): high enough that the
    /// cheapest choice fits, low enough that the bound is close.
    pub(crate) fn relax(&self, tables: &Tables, prices: Prices) -> Relaxation {
        let mut relaxed = Relaxation { prices, bound: f64::INFINITY, best: None };
        let Some((bound, found)) = self.cheapest(tables, prices) else { return relaxed };
        relaxed.bound = bound;
        let Some(limit) = self.memory_limit else {
            relaxed.best = Some(found);
            return relaxed;
        };
        if found.cost.memory <= limit {
            relaxed.best = Some(found);
            return relaxed;
        }

        // The choice that takes least memory; none fits if it does not.
        relaxed.best = self.cheapest(tables, Prices::MEMORY).map(|(_, smallest)| smallest);
        relaxed.best = relaxed.best.filter(|smallest| smallest.cost.memory <= limit);
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut price = if bound > 0.0 { bound / limit.max(1.0) } else { 1.0 };
        for _ in 0..MEMORY_PRICES {
            let priced = Prices { memory: price, ..prices };
            let Some((value, found)) = self.cheapest(tables, priced) else { break };
            let bound = value - price * limit;
            if bound > relaxed.bound {
                relaxed.bound = bound;
                relaxed.prices = priced;
            }
            if found.cost.memory <= limit {
                high = price;
                let better = |best: &Found| prices.of(found.cost) < prices.of(best.cost);
                if relaxed.best.as_ref().is_none_or(better) {
                    relaxed.best = Some(found);
                }
            } else {
                low = price;
            }
            price = if high.is_finite() { f64::midpoint(low, high) } else { price * 4.0 };
        }
        relaxed
    }

    /// The part of the tables that choices of at most `bound` under the guide's prices of time and GPU time are made
    /// of.
    pub(crate) fn shrunk(&self, tables: &Tables, guide: &Guide, bound: f64) -> Tables {
        let bound = self.with_memory_price(guide, bound);
        let kept = shrink::within(tables, guide, bound + ROUNDING * bound);
        shrink::fold(kept, &mut self.history.borrow_mut())
    }

    fn cheapest(&self, tables: &Tables, prices: Prices) -> Option<(f64, Found)> {
        let (value, cost, history) = cheapest(tables, prices, &mut self.history.borrow_mut())?;
        Some((value, Found { cost, history }))
    }

    /// A bound under prices of time and GPU time, for choices within the memory limit, as one under all prices.
    fn with_memory_price(&self, guide: &Guide, bound: f64) -> f64 {
        bound + guide.prices.memory * self.memory_limit.unwrap_or(0.0)
    }

    fn too_many_labels(&self) -> Error {
        too_many_labels(&self.options)
    }
}

fn too_many_labels(options: &SearchOptions) -> Error {
    Error::TooManyLabels { max_labels: options.max_labels, epsilon: options.epsilon }
}

/// Tables with the bounds that windows over them need.
pub(crate) struct Scope<'s> {
    solver: &'s Solver<'s>,
    tables: &'s Tables,
    guide: Guide,
    time: Guide,
    gpu: Guide,
    memory: Option<Guide>,
}

impl<'s> Scope<'s> {
    pub(crate) fn new(solver: &'s Solver<'s>, tables: &'s Tables, guide: Guide) -> Self {
        let by = |prices| Guide::new(tables, prices);
        let memory = solver.memory_limit.map(|_| by(Prices::MEMORY));
        Self { solver, tables, guide, time: by(Prices::TIME), gpu: by(Prices::GPU), memory }
    }

    /// All nondominated choices within `corner` that cost at most `bound` under the guide's prices of time and GPU
    /// time; iteration times rise and GPU times fall.
    pub(crate) fn window(&self, corner: Cost, bound: f64) -> Result<Vec<Found>> {
        let solver = self.solver;
        solver.options.stop.check()?;
        if self.tables.is_empty() {
            return Ok(Vec::new());
        }
        let mut fences = vec![Fence::new(&self.guide, solver.with_memory_price(&self.guide, bound))];
        fences.extend(corner.time.is_finite().then(|| Fence::new(&self.time, corner.time)));
        fences.extend(corner.gpu.is_finite().then(|| Fence::new(&self.gpu, corner.gpu)));
        let limit = solver.memory_limit.unwrap_or(0.0);
        fences.extend(self.memory.iter().map(|guide| Fence::new(guide, limit)));
        let history = &mut solver.history.borrow_mut();
        let labels = window::search(self.tables, &fences, solver.slack, solver.options.max_labels, history)
            .map_err(|window::TooManyLabels| solver.too_many_labels())?;
        let mut found: Vec<Found> =
            labels.iter().map(|label| Found { cost: label.cost, history: label.history }).collect();
        // Less memory was a merit of partial plans; of complete ones it is none.
        let without_memory = |found: &Found| Cost { memory: 0.0, ..found.cost };
        keep_nondominated(&mut found, without_memory, solver.slack);
        Ok(found)
    }
}

/// How far to look between a bound and a value that is known to be reached: most of the time the optimum is close
/// to the bound, and a narrow window costs a fraction of a wide one.
pub(crate) fn reaches(bound: f64, reached: f64) -> [f64; 3] {
    let gap = (reached - bound).max(0.0);
    [bound + gap / 16.0, bound + gap / 4.0, bound.max(reached)]
}

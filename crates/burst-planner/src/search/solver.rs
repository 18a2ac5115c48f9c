//! What both searches are made of: relaxations, which are cheap and give bounds, and windows, which are exact.

use super::SearchOptions;
use super::cost::{Cost, Prices};
use super::elimination::Model;
use super::guide::{Guide, cheapest};
use super::labels::{Slack, keep_nondominated};
use super::window::{self, Fence, ROUNDING};
use crate::{Error, PlanProblem, Result, Totals, evaluate};

/// Prices of memory that are tried to tighten one bound.
const MEMORY_PRICES: usize = 24;

/// A complete choice that respects the memory limit.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub(crate) choice: Vec<usize>,
    pub(crate) totals: Totals,
}

impl Candidate {
    /// Whether it is a better compromise than either end: faster than `cheap` and cheaper than `fast`, by more than
    /// rounding.
    pub(crate) fn lies_between(&self, fast: &Self, cheap: &Self) -> bool {
        self.totals.gpu_time_us < fast.totals.gpu_time_us * (1.0 - ROUNDING)
            && self.totals.iteration_us < cheap.totals.iteration_us * (1.0 - ROUNDING)
    }

    pub(crate) fn cost(&self) -> Cost {
        Cost { time: self.totals.iteration_us, gpu: self.totals.gpu_time_us, memory: 0.0 }
    }
}

/// What minimising one priced sum tells.
pub(crate) struct Relaxation {
    /// The prices of time and GPU time asked for, and the price of memory that gives the best bound.
    pub(crate) prices: Prices,
    /// No choice within the memory limit costs less, priced by time and GPU time.
    pub(crate) bound: f64,
    /// The best choice within the memory limit that was met; optimal when memory does not bind.
    pub(crate) best: Candidate,
}

pub(crate) enum Objective {
    Time,
    GpuTime,
}

pub(crate) struct Solver<'p> {
    model: Model<'p>,
    options: SearchOptions,
    time: Guide,
    gpu: Guide,
    memory: Option<Guide>,
    /// Sums in different orders differ by rounding; what differs by no more is the same.
    slack: Slack,
}

impl<'p> Solver<'p> {
    pub(crate) fn new(problem: &'p PlanProblem, options: &SearchOptions) -> Result<Self> {
        problem.validate()?;
        options.validate()?;
        let model = Model::new(problem)?;
        let time = Guide::new(&model, Prices::TIME);
        let gpu = Guide::new(&model, Prices::GPU);
        let memory = model.memory_limit.map(|_| Guide::new(&model, Prices::MEMORY));
        // Nothing is faster than the cheapest choice, so a share of its time is a share of any plan's.
        let share = |guide: &Guide| {
            ROUNDING * guide.inside.last().map_or(0.0, |root| root[0]) / window::steps(&model) as f64
        };
        let slack = Slack { time: share(&time), gpu: share(&gpu) };
        Ok(Self { model, options: options.clone(), time, gpu, memory, slack })
    }

    pub(crate) fn problem(&self) -> &'p PlanProblem {
        self.model.problem
    }

    pub(crate) fn epsilon(&self) -> f64 {
        self.options.epsilon
    }

    /// The best choice for one criterion, whatever the tolerance; among equals the one that is better in the other.
    pub(crate) fn extreme(&self, objective: &Objective) -> Result<Candidate> {
        let unlimited = Cost { time: f64::INFINITY, gpu: f64::INFINITY, memory: 0.0 };
        let prices = match objective {
            Objective::Time => Prices::TIME,
            Objective::GpuTime => Prices::GPU,
        };
        let relaxed = self.relax(prices)?;
        let guide = Guide::new(&self.model, relaxed.prices);
        for reach in reaches(relaxed.bound, prices.of(relaxed.best.cost())) {
            let corner = match objective {
                Objective::Time => Cost { time: reach, ..unlimited },
                Objective::GpuTime => Cost { gpu: reach, ..unlimited },
            };
            let mut found = self.window(&guide, corner, reach)?.into_iter();
            let best = match objective {
                Objective::Time => found.next(),
                Objective::GpuTime => found.next_back(),
            };
            if let Some(best) = best {
                return Ok(best);
            }
        }
        Ok(relaxed.best)
    }

    /// Minimises a priced sum of time and GPU time.
    ///
    /// With a binding memory limit memory gets a price, too (Lagrangian relaxation): high enough that the
    /// cheapest choice fits, low enough that the bound is close.
    pub(crate) fn relax(&self, prices: Prices) -> Result<Relaxation> {
        let (bound, choice) = cheapest(&self.model, prices);
        let best = self.candidate(choice)?;
        let Some(limit) = self.model.memory_limit else { return Ok(Relaxation { prices, bound, best }) };
        if self.memory_of(&best.choice) <= limit {
            return Ok(Relaxation { prices, bound, best });
        }

        let mut relaxed = Relaxation { prices, bound, best: self.candidate(self.smallest())? };
        let (mut low, mut high) = (0.0, f64::INFINITY);
        let mut price = if bound > 0.0 { bound / limit.max(1.0) } else { 1.0 };
        for _ in 0..MEMORY_PRICES {
            let priced = Prices { memory: price, ..prices };
            let (value, choice) = cheapest(&self.model, priced);
            let bound = value - price * limit;
            if bound > relaxed.bound {
                relaxed.bound = bound;
                relaxed.prices = priced;
            }
            if self.memory_of(&choice) <= limit {
                high = price;
                let candidate = self.candidate(choice)?;
                if prices.of(candidate.cost()) < prices.of(relaxed.best.cost()) {
                    relaxed.best = candidate;
                }
            } else {
                low = price;
            }
            price = if high.is_finite() { f64::midpoint(low, high) } else { price * 4.0 };
        }
        Ok(relaxed)
    }

    /// The guide that belongs to a relaxation.
    pub(crate) fn guide(&self, relaxed: &Relaxation) -> Guide {
        Guide::new(&self.model, relaxed.prices)
    }

    /// All nondominated choices within `corner` that cost at most `bound` under the guide's prices of time and GPU
    /// time; iteration times rise and GPU times fall.
    pub(crate) fn window(&self, guide: &Guide, corner: Cost, bound: f64) -> Result<Vec<Candidate>> {
        let limit = self.model.memory_limit.unwrap_or(0.0);
        let mut fences = vec![Fence::new(guide, bound + guide.prices.memory * limit)];
        fences.extend(corner.time.is_finite().then(|| Fence::new(&self.time, corner.time)));
        fences.extend(corner.gpu.is_finite().then(|| Fence::new(&self.gpu, corner.gpu)));
        fences.extend(self.memory.iter().map(|guide| Fence::new(guide, limit)));
        let max_labels = self.options.max_labels;
        let (history, labels) = window::search(&self.model, &fences, self.slack, max_labels).map_err(
            |window::TooManyLabels| Error::TooManyLabels { max_labels, epsilon: self.options.epsilon },
        )?;
        let found = labels.iter().map(|label| self.candidate(history.choice(label)));
        let mut found = found.collect::<Result<Vec<_>>>()?;
        // Less memory was a merit of partial plans; of complete ones it is none.
        keep_nondominated(&mut found, Candidate::cost, self.slack);
        Ok(found)
    }

    fn candidate(&self, choice: Vec<usize>) -> Result<Candidate> {
        let totals = evaluate(self.model.problem, &choice)?;
        Ok(Candidate { choice, totals })
    }

    /// The choice that takes least memory.
    fn smallest(&self) -> Vec<usize> {
        let nodes = self.model.problem.nodes.iter();
        let memory = |options: &[crate::NodeOption]| {
            let smallest = options.iter().enumerate().min_by_key(|(_, option)| option.memory_bytes);
            smallest.map_or(0, |(index, _)| index)
        };
        nodes.map(|node| memory(&node.options)).collect()
    }

    fn memory_of(&self, choice: &[usize]) -> f64 {
        let options =
            self.model.problem.nodes.iter().zip(choice).map(|(node, &option)| &node.options[option]);
        options.map(|option| option.memory_bytes.unwrap_or(0) as f64).sum()
    }
}

/// How far to look between a bound and a value that is known to be reached: most of the time the optimum is close
/// to the bound, and a narrow window costs a fraction of a wide one.
pub(crate) fn reaches(bound: f64, reached: f64) -> [f64; 3] {
    let gap = (reached - bound).max(0.0);
    [bound + gap / 16.0, bound + gap / 4.0, bound.max(reached)]
}

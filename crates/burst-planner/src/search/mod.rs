//! The search for arrangements that are fast and take little GPU time.

mod archive;
mod chain;
mod coarse;
mod evaluate;
mod gpu_levels;
mod graph_parts;
mod improve;
mod memory_seeds;
mod move_mix;
mod moves;
mod one_gpu_seeds;
mod random;
mod random_restart;
mod seeds;
mod sequence;
mod series_parallel;
mod shared_parameter_seeds;
mod stage;
mod staircase;
mod systematic;
mod tempering;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::bound::Bound;
use crate::costs::{CostModel, ShardSize};
use crate::evaluator::{Evaluator, NumberedArrangement, Plan};
use crate::{Error, NodeId, PlanProblem, Result, Stop};
use chain::Chain;
use coarse::{CoarseCosts, CoarseProblem};
pub use evaluate::evaluate_arrangements;
use sequence::Sequence;
use stage::SearchStage;
use staircase::Staircase;

/// How many changes are tried with 8 GPUs, about.
const EVALUATIONS: f64 = 900.0;
/// How many more are tried where there are few blocks, and an evaluation takes next to nothing.
const MORE_EVALUATIONS: f64 = 1_000_000.0;
/// With so many blocks a third of these additional changes are made, and with half as many again next to none.
const FEW_BLOCKS: f64 = 22.0;

/// With more GPUs than this, arrangements of chains are proposed by their bound, too.
const FEW_GPUS: usize = 8;

/// Times are compared with limits at this relative tolerance.
const LIMIT_TOLERANCE: f64 = 1e-9;

/// How long to search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// How many arrangements are tried, as a multiple of the usual number. 1 by default.
    pub effort: f64,
    /// IterationEnds the search early, without an answer.
    pub stop: Stop,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { effort: 1.0, stop: Stop::default() }
    }
}

/// Arrangements that are Pareto-optimal among those that were evaluated: none is at least as good as one of them in iteration time and GPU
/// time, and better in one.
#[derive(Debug, Clone)]
pub struct Frontier {
    plans: Vec<Plan>,
    single_gpu_us: f64,
    evaluations: u64,
    bound: Bound,
}

/// Searches for the Pareto frontier of all arrangements, which are evaluated by the time of the program alone.
///
/// What is found does not depend on any limit, and what is found with some GPUs is found with more of them: a looser limit or
/// more GPUs never give a slower arrangement. Data parallelism on any number of GPUs is among what is tried. The same problem
/// gives the same answer.
///
/// # Method
/// The search climbs from one GPU to all there are, and keeps a Pareto archive of iteration time and GPU time. With each number
/// of GPUs it evaluates arrangements that simpler models propose: dynamic programming along the order of the nodes, one by one or
/// with all branches between a fork and a join side by side, for many prices of GPU time; staircases of fewer and fewer GPUs; each node
/// on a GPU of its own, as [placements](crate::placement) have it; what the lower bound of a chain is least for, on many GPUs; all users of the same
/// parameters together on one GPU. Then it changes what is in the archive: nodes, stretches of the order, branches or whole runs
/// move to other ranks, or to another place in the order, and two arrangements are joined. First short stretches of chains are moved
/// as one node, then nodes by themselves. Where all nodes are one chain, dynamic programming over lists of ranks proposes more, by a
/// model that is close to the program's time, and what it proposes is changed systematically by that model; the fastest are changed systematically at last. Where there are few of them, and an evaluation
/// takes next to nothing, many more changes are tried by iterated local search, from what is in the archive and from random arrangements, and nodes may get the ranks of others in reverse order: their
/// gradients have buckets of their own then. Where these few are no chain, the fastest of all is also searched for by parallel tempering.
///
/// It is a heuristic: [`Frontier::lower_bound_us`] says how far from the best an arrangement can be at most. The number of
/// evaluations grows with [`SearchOptions::effort`], but for systematic changes, which end when nothing gets faster; one takes O((nodes + edges) x classes of ranks).
///
/// # Errors
/// What [`PlanProblem::validate`] reports, [`Error::NoTimes`] where a node has no times for one GPU,
/// [`Error::MemoryExceeded`] where nothing that was met keeps the limit on memory, and [`Error::Stopped`].
pub fn frontier(problem: &PlanProblem, costs: impl CostModel, options: &SearchOptions) -> Result<Frontier> {
    search(problem, &costs, options)
}

/// Returns the fastest plan that the search finds whose amplification is at most `limit`. Use [`frontier`] to compare
/// several limits: it searches once for all of them.
///
/// # Errors
/// Those of [`frontier`], and [`Error::BadLimit`] and [`Error::LimitUnreachable`].
pub fn plan(
    problem: &PlanProblem,
    costs: impl CostModel,
    limit: f64,
    options: &SearchOptions,
) -> Result<Plan> {
    check_limit(limit)?;
    search(problem, &costs, options)?.fastest_within(limit).cloned()
}

fn search(problem: &PlanProblem, costs: &dyn CostModel, options: &SearchOptions) -> Result<Frontier> {
    let exact = Evaluator::new(problem, costs)?.stopped_by(&options.stop);
    let single_gpu_us = exact.single_gpu_us()?;
    let times: Vec<f64> = (0..problem.nodes.len())
        .map(|node| costs.compute(NodeId(node), 1, ShardSize::Larger).unwrap_or_default().total_us())
        .collect();
    let bound = Bound::new(problem, problem.gpus, exact.structure(), costs, |_| true);
    let coarse = CoarseProblem::new(problem, exact.structure(), &times);
    let coarse_costs = CoarseCosts { costs, blocks: &coarse.blocks };
    let mut evaluator = Evaluator::new(&coarse.problem, coarse_costs)?.stopped_by(&options.stop);
    let proposed = thinned(&counts(problem));
    let mut sequences = vec![Sequence::of_nodes(&mut evaluator, &proposed)];
    let mut blocks = SearchStage::new(evaluator, single_gpu_us);
    let last = gpu_levels::up_to(problem).last().unwrap_or(1);
    let chain = Chain::new(&exact, &proposed, coarse.blocks.iter().map(Vec::len));
    let one_gpu =
        one_gpu_seeds::one_gpu_placements(&mut blocks.evaluator, last, options.effort, &options.stop)?;
    if !blocks.shape.parallels.is_empty() {
        sequences.push(Sequence::of_branches(&mut blocks.evaluator, &proposed, &blocks.shape));
    }
    let mut search = Search {
        coarse: &coarse,
        sequences,
        proposed,
        blocks,
        nodes: SearchStage::new(exact, single_gpu_us),
        effort: options.effort,
        one_gpu,
        chain,
    };
    let mut fewer = 0;
    for level in gpu_levels::up_to(problem) {
        search.search_level(fewer, level)?;
        fewer = level;
    }
    for gpus in 1..=problem.gpus {
        search.nodes.data_parallel(gpus, false)?;
    }
    let Search { blocks, mut nodes, chain, .. } = search;
    let mut evaluations = blocks.evaluator.evaluations;
    // Apart from all the rest, so that neither depends on how the other one fares.
    if chain.is_none() {
        let coarse_costs = CoarseCosts { costs, blocks: &coarse.blocks };
        let evaluator = Evaluator::new(&coarse.problem, coarse_costs)?.stopped_by(&options.stop);
        let mut tempered = SearchStage::new(evaluator, single_gpu_us);
        for level in gpu_levels::up_to(problem) {
            tempered.parallel_tempering(level, options.effort)?;
        }
        coarse.expand_new(&mut tempered, &mut nodes)?;
        evaluations += tempered.evaluator.evaluations;
    }
    evaluations += nodes.evaluator.evaluations;
    Ok(Frontier { evaluations, ..found(nodes, bound)? })
}

/// What a stage has found.
fn found(stage: SearchStage<'_>, bound: Bound) -> Result<Frontier> {
    let SearchStage { mut evaluator, archive, single_gpu_us, .. } = stage;
    if let Some(closest) = archive.closest() {
        let closest = evaluator.arrangement(&closest.arrangement);
        evaluator.check_memory(&closest)?;
    }
    let plans = archive
        .into_entries()
        .into_iter()
        .map(|entry| Plan { time: entry.time, arrangement: evaluator.arrangement(&entry.arrangement) })
        .collect();
    Ok(Frontier { plans, single_gpu_us, evaluations: evaluator.evaluations, bound })
}

/// All GPU counts that some node may run on.
fn counts(problem: &PlanProblem) -> Vec<usize> {
    let counts = problem.nodes.iter().flat_map(|node| node.gpu_counts.iter().copied());
    let mut counts: Vec<usize> = counts.filter(|&count| count <= problem.gpus).collect();
    counts.sort_unstable();
    counts.dedup();
    counts
}

/// Of many counts those up to 8 that there are, and above that some that are at least a fifth apart.
fn thinned(counts: &[usize]) -> Vec<usize> {
    let mut thinned: Vec<usize> = Vec::new();
    for &count in counts {
        if count <= 8 || thinned.last().is_none_or(|&last| count * 5 >= last * 6) {
            thinned.push(count);
        }
    }
    thinned
}

/// The state of a search: blocks of nodes are placed together first, then the best of that is refined node by node.
struct Search<'p> {
    coarse: &'p CoarseProblem,
    /// By nodes, and where there are branches with these side by side.
    sequences: Vec<Sequence>,
    /// The GPU counts of what simpler models propose.
    proposed: Vec<usize>,
    blocks: SearchStage<'p>,
    nodes: SearchStage<'p>,
    effort: f64,
    /// By number of GPUs: each node on one of them.
    one_gpu: Vec<NumberedArrangement>,
    /// Where the nodes are one.
    chain: Option<Chain>,
}

impl Search<'_> {
    /// Searches with the first `gpus` ranks, going on from what was found with `fewer`.
    fn search_level(&mut self, fewer: usize, gpus: usize) -> Result<()> {
        self.blocks.data_parallel(gpus, true)?;
        // Without another count, what sequences would propose differs from what they did with fewer GPUs by prices alone.
        if self.proposed.iter().any(|count| (fewer + 1..=gpus).contains(count)) {
            for sequence in &self.sequences {
                let proposed = [sequence.serial(gpus), sequence.communication_bound(gpus)];
                for seed in proposed.iter().flatten() {
                    self.blocks.evaluate(seed)?;
                }
            }
        }
        for staircases in Staircase::all(&mut self.blocks.evaluator, gpus, &self.proposed) {
            self.blocks.place_borders(staircases)?;
        }
        if let Some(fastest) = self.blocks.archive.starting_points().first() {
            self.blocks.spread_branches(fastest.arrangement.clone(), gpus)?;
        }
        if (2..=one_gpu_seeds::MAX_GPUS).contains(&gpus) {
            if let Some(seed) = self.one_gpu.get(gpus - 1).or(self.one_gpu.last()) {
                self.blocks.evaluate(seed)?;
            }
        }
        for seed in seeds::narrow_ends(&mut self.blocks.evaluator, gpus, &self.proposed) {
            self.blocks.evaluate(&seed)?;
        }
        // On few, the model of chains finds the same and more, in less time.
        if gpus > FEW_GPUS {
            for seed in seeds::relaxed_chain(&mut self.blocks.evaluator, (fewer, gpus), &self.proposed) {
                self.blocks.evaluate(&seed)?;
            }
        }
        self.blocks.place_parameter_users(gpus)?;
        for seed in memory_seeds::balanced_stretches(&mut self.blocks.evaluator, gpus) {
            self.blocks.evaluate(&seed)?;
        }
        // The same draws whatever the number of GPUs that there are.
        let mut random = ChaCha8Rng::seed_from_u64(gpus as u64);
        let (steps, more) = self.steps(gpus);
        self.blocks.improve(gpus, (steps + more) / 4, 0.02, &mut random)?;
        self.blocks.evolve(gpus, steps * 3 / 2, &mut random)?;
        self.blocks.iterated_local_search(gpus, more * 3 / 4, self.effort, &mut random)?;
        self.coarse.expand_new(&mut self.blocks, &mut self.nodes)?;
        if let Some(chain) = &mut self.chain {
            self.nodes.search_chain(chain, fewer, gpus)?;
        } else {
            self.nodes.improve(gpus, steps / 4, 0.0, &mut random)?;
        }
        self.nodes.evolve(gpus, steps / 4, &mut random)?;
        self.nodes.systematic_descent(gpus, &self.proposed)
    }

    /// How many changes are tried, and how many more where there are few blocks.
    fn steps(&self, gpus: usize) -> (usize, usize) {
        let blocks = self.coarse.blocks.len() as f64;
        let share = if gpus < 8 { gpus as f64 / 8.0 } else { (8.0 / gpus as f64).powf(0.7) };
        let few = (-(blocks / FEW_BLOCKS).powi(6)).exp();
        let tried = |all: f64| (self.effort * all).ceil() as usize;
        (tried(share * EVALUATIONS), tried(share * few * MORE_EVALUATIONS))
    }
}

impl Frontier {
    /// The arrangements, by rising iteration time and falling GPU time.
    #[must_use]
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// The time of everything on one GPU, which amplification is a multiple of.
    #[must_use]
    pub fn single_gpu_us(&self) -> f64 {
        self.single_gpu_us
    }

    /// How many arrangements were evaluated.
    #[must_use]
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// The fastest arrangement whose amplification is at most `limit`, at 1e-9 relative.
    ///
    /// # Errors
    /// [`Error::BadLimit`] and [`Error::LimitUnreachable`].
    pub fn fastest_within(&self, limit: f64) -> Result<&Plan> {
        check_limit(limit)?;
        let budget_us = with_tolerance(limit * self.single_gpu_us);
        let first = self.plans.partition_point(|plan| plan.time.gpu_time_us > budget_us);
        self.plans.get(first).ok_or_else(|| {
            let smallest_us = self.plans.last().map_or(f64::INFINITY, |plan| plan.time.gpu_time_us);
            Error::LimitUnreachable { limit, smallest: smallest_us / self.single_gpu_us }
        })
    }

    /// The arrangement with the least GPU time whose iteration takes no longer than a deadline.
    ///
    /// # Errors
    /// [`Error::BadDeadline`] and [`Error::DeadlineUnreachable`].
    pub fn cheapest_within(&self, deadline_us: f64) -> Result<&Plan> {
        if deadline_us.is_nan() || deadline_us < 0.0 {
            return Err(Error::BadDeadline { deadline_us });
        }
        let deadline = with_tolerance(deadline_us);
        let late = self.plans.partition_point(|plan| plan.time.iteration_us <= deadline);
        late.checked_sub(1).and_then(|last| self.plans.get(last)).ok_or_else(|| {
            let smallest_us = self.plans.first().map_or(f64::INFINITY, |plan| plan.time.iteration_us);
            Error::DeadlineUnreachable { deadline_us, smallest_us }
        })
    }

    /// The arrangement beyond which being faster costs much and being cheaper saves little: the one that lies farthest below
    /// the line from the fastest to the cheapest, by the logarithms of both times.
    #[must_use]
    pub fn knee(&self) -> Option<&Plan> {
        let (first, last) = (self.plans.first()?, self.plans.last()?);
        let logarithms = |plan: &Plan| (plan.time.iteration_us.ln(), plan.time.gpu_time_us.ln());
        let ((x0, y0), (x1, y1)) = (logarithms(first), logarithms(last));
        let below = |plan: &&Plan| {
            let (x, y) = logarithms(plan);
            (x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)
        };
        self.plans.iter().max_by(|a, b| below(a).total_cmp(&below(b)))
    }

    /// A time that no arrangement whose amplification is at most `limit` is faster than, microseconds. O(nodes x counts^2) some
    /// hundred times.
    #[must_use]
    pub fn lower_bound_us(&self, limit: f64) -> f64 {
        // Never above what was found.
        let found_us = self.fastest_within(limit).map_or(f64::INFINITY, |plan| plan.time.iteration_us);
        self.bound.within(with_tolerance(limit * self.single_gpu_us), found_us).min(found_us)
    }
}

/// Checks an amplification limit.
pub(crate) fn check_limit(limit: f64) -> Result<()> {
    // The comparison is also false for NaN.
    if limit >= 1.0 { Ok(()) } else { Err(Error::BadLimit { limit }) }
}

fn with_tolerance(limit: f64) -> f64 {
    limit * (1.0 + LIMIT_TOLERANCE)
}

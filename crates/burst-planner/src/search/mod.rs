//! The search for arrangements that are fast and take little GPU time.

mod archive;
mod chain;
mod coarse;
mod evaluate;
mod frontier;
mod gpu_levels;
mod graph_parts;
mod improve;
mod memory_seeds;
mod move_mix;
mod moves;
mod one_gpu_seeds;
mod part;
mod random;
mod seeds;
mod sequence;
mod series_parallel;
mod shared_parameter_seeds;
mod split_moves;
mod split_seeds;
mod stage;
mod staircase;
mod systematic;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::bound::Bound;
use crate::costs::{CostModel, ShardSize};
use crate::evaluator::{Evaluator, NumberedArrangement, Plan};
use crate::{NodeId, PlanProblem, Result, Stop};
use chain::Chain;
use coarse::{CoarseCosts, CoarseProblem};
pub use evaluate::evaluate_arrangements;
pub(crate) use frontier::check_limit;
use frontier::found;
pub use frontier::{Frontier, SearchEnd};
pub use part::Part;
use sequence::Sequence;
use stage::SearchStage;
use staircase::Staircase;

/// Approximate number of moves evaluated for 8 GPUs.
const EVALUATIONS: f64 = 900.0;
/// Approximate number of additional moves if there are few blocks, whose evaluation is fast.
const MORE_EVALUATIONS: f64 = 40_000.0;
/// Number of blocks for which 1/e of the additional moves are made; with half as many again, nearly
/// none are.
const BLOCK_SCALE: f64 = 22.0;

/// Number of nodes that the moves of single nodes evaluate at a number of GPUs, about.
const MAX_NODES_OF_MOVES: usize = 1_000_000;

/// Above this number of GPUs, the model of chains tries fewer counts.
const MANY_GPUS: usize = 32;

/// Options of the search.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct SearchOptions {
    /// Factor of the number of evaluations, except those of systematic moves; 1 by default.
    pub effort: f64,
    /// Parts of the search that are left out; none by default.
    pub without: Vec<Part>,
    /// Seed of the random numbers; 0 by default.
    pub seed: u32,
    /// Stops the search early, with [`Error::Stopped`](crate::Error::Stopped), and shows its
    /// progress.
    pub stop: Stop,
}

impl Default for SearchOptions {
    fn default() -> Self {
        Self { effort: 1.0, without: Vec::new(), seed: 0, stop: Stop::default() }
    }
}

/// Searches for the Pareto frontier of all arrangements in iteration time and GPU time.
///
/// The search does not depend on a limit, and everything that it finds with fewer GPUs it also
/// finds with more. So a looser limit or more GPUs never give a slower plan. Data parallelism on
/// each number of GPUs is evaluated, too. The same problem always gives the same result. The search
/// is a heuristic: [`Frontier::lower_bound_us`] bounds the distance to the optimum.
///
/// ```
/// use burst_planner::testing::{RandomProblem, random_problem};
/// use burst_planner::{SearchOptions, frontier};
///
/// let RandomProblem { problem, costs, .. } = random_problem(1);
/// let found = frontier(&problem, &costs, &SearchOptions::default())?;
/// let (loose, tight) = (found.fastest_within(2.0)?, found.fastest_within(1.1)?);
/// assert!(loose.time.iteration_us <= tight.time.iteration_us);
/// assert!(found.lower_bound_us(1.1) <= tight.time.iteration_us);
/// let relaxed = found.cheapest_within(2.0 * tight.time.iteration_us)?;
/// assert!(relaxed.time.gpu_time_us <= tight.time.gpu_time_us);
/// # Ok::<(), burst_planner::Error>(())
/// ```
///
/// The [crate's page](crate#the-search) describes the method. The number of evaluations grows with
/// [`SearchOptions::effort`], except those of proposals and systematic moves. An evaluation takes
/// O((nodes + edges) x classes of ranks).
///
/// # Errors
/// Those of [`PlanProblem::validate`]; [`NoTimes`](crate::Error::NoTimes) if a node has no times
/// for one GPU, [`MemoryExceeded`](crate::Error::MemoryExceeded) if no plan within the memory limit
/// is found, and [`Stopped`](crate::Error::Stopped) if the search was stopped.
pub fn frontier(problem: &PlanProblem, costs: impl CostModel, options: &SearchOptions) -> Result<Frontier> {
    search(problem, &costs, options)
}

/// Returns the fastest plan that the search finds whose amplification is at most `limit`.
/// [`frontier`] searches once for all limits.
///
/// # Errors
/// Those of [`frontier`]; [`BadLimit`](crate::Error::BadLimit) if `limit` is below 1 or not a
/// number, [`LimitUnreachable`](crate::Error::LimitUnreachable) if no plan is within it.
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
    let bound = Bound::new(problem, exact.structure(), costs);
    let coarse = CoarseProblem::new(problem, exact.structure(), &times, options.uses(Part::Blocks))?;
    let coarse_costs = CoarseCosts::new(costs, &coarse.blocks, problem);
    let mut evaluator = Evaluator::new(&coarse.problem, coarse_costs)?.stopped_by(&options.stop);
    let counts = problem.all_gpu_counts();
    let proposed = thinned(&counts, 8, 1.2);
    let mut sequences = vec![Sequence::of_nodes(&mut evaluator, &proposed)];
    let mut blocks = SearchStage::new(evaluator, single_gpu_us);
    let chain = Chain::new(&exact, &thinned(&counts, MANY_GPUS, 1.4), coarse.blocks.iter().map(Vec::len));
    if options.uses(Part::BranchSequences) && !blocks.graph_parts.parallels.is_empty() {
        sequences.push(Sequence::of_branches(&mut blocks.evaluator, &proposed, &blocks.graph_parts));
    }
    let placements = if options.uses(Part::Placements) {
        let last = gpu_levels::up_to(problem).last().unwrap_or(1);
        one_gpu_seeds::one_gpu_placements(&mut blocks.evaluator, last, options.effort, &options.stop)?
    } else {
        Vec::new()
    };
    let splits = if problem.has_splits() && options.uses(Part::Splits) {
        let evaluator = Evaluator::new(problem, costs)?.stopped_by(&options.stop);
        Some(SearchStage::new(evaluator, single_gpu_us))
    } else {
        None
    };
    let mut search = Search {
        coarse: &coarse,
        placements,
        sequences,
        proposed,
        blocks,
        nodes: SearchStage::new(exact, single_gpu_us),
        splits,
        options,
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
    let Search { blocks, nodes, splits, .. } = search;
    let mut evaluations = blocks.evaluator.evaluations + nodes.evaluator.evaluations;
    let mut is_budget_spent = blocks.is_budget_spent || nodes.is_budget_spent;
    let best = match splits {
        Some(mut splits) => {
            splits.offer_results(&nodes)?;
            evaluations += splits.evaluator.evaluations;
            is_budget_spent |= splits.is_budget_spent;
            splits
        }
        None => nodes,
    };
    let search_end = if is_budget_spent { SearchEnd::Budget } else { SearchEnd::Converged };
    Ok(Frontier { evaluations, search_end, ..found(best, bound)? })
}

/// Returns the counts up to `all`, and larger ones at least a factor of `apart` apart, from those
/// that are 1.2 apart beyond 8.
fn thinned(counts: &[usize], all: usize, apart: f64) -> Vec<usize> {
    let mut thinned: Vec<usize> = Vec::new();
    for &count in counts {
        let apart = if count <= 8 {
            0.0
        } else if count <= all {
            1.2
        } else {
            apart
        };
        if thinned.last().is_none_or(|&last| count as f64 >= last as f64 * apart) {
            thinned.push(count);
        }
    }
    thinned
}

/// State of a search: blocks of nodes are placed first, then the best results are refined node by
/// node.
struct Search<'p> {
    coarse: &'p CoarseProblem,
    /// Models of the nodes in sequence, and of branches side by side if there are any.
    sequences: Vec<Sequence>,
    /// GPU counts of arrangements that simpler models propose.
    proposed: Vec<usize>,
    /// By number of GPUs: the placement of each node on one GPU. Empty for a chain.
    placements: Vec<NumberedArrangement>,
    blocks: SearchStage<'p>,
    nodes: SearchStage<'p>,
    /// The nodes with splits, if there are any. The other stages do not use their results, so they
    /// find the same as without splits.
    splits: Option<SearchStage<'p>>,
    options: &'p SearchOptions,
    /// The chain, if the graph is one.
    chain: Option<Chain>,
}

impl Search<'_> {
    /// Searches with the first `gpus` ranks, starting from the results for `fewer`.
    fn search_level(&mut self, fewer: usize, gpus: usize) -> Result<()> {
        let options = self.options;
        self.blocks.data_parallel(gpus, true)?;
        // If no count is added, the sequences propose nearly the same as with fewer GPUs.
        if self.proposed.iter().any(|count| (fewer + 1..=gpus).contains(count)) {
            for sequence in &self.sequences {
                if options.uses(Part::Sequences) {
                    self.blocks.offer_all(&sequence.serial(gpus))?;
                }
                if options.uses(Part::CommunicationBound) {
                    self.blocks.offer_all(&sequence.communication_bound(gpus))?;
                }
            }
        }
        if options.uses(Part::Staircases) {
            for staircases in Staircase::all(&mut self.blocks.evaluator, gpus, &self.proposed) {
                self.blocks.place_borders(staircases)?;
            }
        }
        if options.uses(Part::SpreadBranches) {
            if let Some(fastest) = self.blocks.archive.starting_points().first() {
                self.blocks.spread_branches(fastest.arrangement.clone(), gpus)?;
            }
        }
        if options.uses(Part::NarrowEnds) {
            let seeds = seeds::narrow_ends(&mut self.blocks.evaluator, gpus, &self.proposed);
            self.blocks.offer_all(&seeds)?;
        }
        if let Some(seed) = self.placements.get(gpus - 1) {
            self.blocks.evaluate(seed)?;
        }
        if options.uses(Part::ParameterUsers) {
            self.blocks.place_parameter_users(gpus)?;
        }
        if options.uses(Part::MemoryStretches) {
            let seeds = memory_seeds::balanced_stretches(&mut self.blocks.evaluator, gpus);
            self.blocks.offer_all(&seeds)?;
        }
        // The same random numbers for any total number of GPUs.
        let mut random = ChaCha8Rng::seed_from_u64(u64::from(options.seed) << 32 | gpus as u64);
        let (moves, more) = self.move_counts(gpus);
        if options.uses(Part::ThresholdAccepting) {
            self.blocks.improve(gpus, (moves + more) / 4, 0.02, &mut random)?;
        }
        if options.uses(Part::ArchiveMoves) {
            self.blocks.evolve(gpus, moves * 3 / 2, &mut random)?;
        }
        if options.uses(Part::IteratedSearch) {
            self.blocks.iterated_local_search(gpus, more, options.effort, &mut random)?;
        }
        self.coarse.expand_new(&mut self.blocks, &mut self.nodes)?;
        // Moves of single nodes of a deep network change little, and their evaluation takes long.
        let moves = moves.min(MAX_NODES_OF_MOVES / self.nodes.node_count());
        if let Some(chain) = &mut self.chain {
            self.nodes.search_chain(chain, fewer, gpus, options)?;
        } else if options.uses(Part::ThresholdAccepting) {
            self.nodes.improve(gpus, moves / 4, 0.0, &mut random)?;
        }
        if options.uses(Part::ArchiveMoves) {
            self.nodes.evolve(gpus, moves / 4, &mut random)?;
        }
        if options.uses(Part::SystematicMoves) {
            self.nodes.systematic_descent(gpus, &self.proposed)?;
        }
        if let Some(splits) = &mut self.splits {
            splits.offer_results(&self.nodes)?;
            // Levels between powers of two add little.
            if gpus <= 8 || gpus.is_power_of_two() {
                splits.propose_splits(gpus)?;
            }
            // About the time that the search without splits took, unless there are few blocks.
            let of_blocks = self.blocks.evaluator.evaluations * self.coarse.blocks.len() as u64;
            let evaluations =
                of_blocks / splits.node_count().max(1) as u64 + self.nodes.evaluator.evaluations;
            let maximum = evaluations.max(2 * (moves + more) as u64);
            splits.improve_splits(gpus, &self.proposed, (moves + more, maximum), &mut random)?;
        }
        Ok(())
    }

    /// Returns the number of moves, and the number of additional moves if there are few blocks.
    fn move_counts(&self, gpus: usize) -> (usize, usize) {
        let blocks = self.coarse.blocks.len() as f64;
        let share = if gpus < 8 { gpus as f64 / 8.0 } else { (8.0 / gpus as f64).powf(0.7) };
        let few = (-(blocks / BLOCK_SCALE).powi(6)).exp();
        let tried = |all: f64| (self.options.effort * all).ceil() as usize;
        (tried(share * EVALUATIONS), tried(share * few * MORE_EVALUATIONS))
    }
}

//! A problem under search, with the results so far. An arrangement above the memory limit is
//! *infeasible*; its *memory penalty* is a factor of its iteration time above 1.

use std::cell::Cell;
use std::hash::BuildHasher;

use rustc_hash::{FxBuildHasher, FxHashMap};

use super::archive::Archive;
use super::graph_parts::GraphParts;
use super::moves::on_rank_ranges;
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement, PlanTime};

/// Exponent of the memory penalty: the time of an arrangement above the memory limit is multiplied
/// by (memory / limit) to this power. The search can pass through such arrangements but does not
/// end at one.
const MEMORY_PENALTY_POWER: i32 = 8;

/// Maximum number of known results (about 60 MB).
const MAX_KNOWN: usize = 1 << 20;

/// The result of an earlier evaluation.
#[derive(Clone, Copy)]
struct Known {
    time: PlanTime,
    /// Memory of the fullest rank divided by the limit, if it was computed.
    memory_excess: Option<f64>,
    /// Whether the times are exact, and not lower bounds.
    is_exact: bool,
}

/// A problem under search, with the results so far.
pub(super) struct SearchStage<'p> {
    /// Evaluator of the problem.
    pub(super) evaluator: Evaluator<'p>,
    /// Parts of its graph that moves treat as a unit.
    pub(super) graph_parts: GraphParts,
    /// Pareto-optimal arrangements among those evaluated.
    pub(super) archive: Archive,
    /// Time of an iteration on one GPU, microseconds, for amplification.
    pub(super) single_gpu_us: f64,
    /// Whether an arrangement above the memory limit was evaluated.
    pub(super) is_short_of_memory: bool,
    /// Whether a randomized part of the search ended because its number of moves was reached.
    pub(super) is_budget_spent: bool,
    /// Results by hash of the arrangement. Arrangements with the same hash count as the same one:
    /// that is rare, and at worst one of them is not tried.
    known: FxHashMap<u64, Known>,
}

/// Result of evaluating an arrangement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// Its time, or lower bounds of both times if the evaluation was [cut
    /// off](SearchStage::evaluate_with_cutoff).
    pub(super) time: PlanTime,
    /// Memory of its fullest rank divided by the limit; 1 if it is within the limit, there is none,
    /// or the evaluation was cut off.
    pub(super) memory_excess: f64,
    /// Whether the archive has recorded it, as an entry or as the arrangement closest to the memory
    /// limit.
    pub(super) is_archived: bool,
}

impl Trial {
    /// Returns the iteration time with the memory penalty, microseconds.
    pub(super) fn iteration_us(&self) -> f64 {
        penalized_us(self.time, self.memory_excess)
    }
}

/// Returns the iteration time multiplied by the memory penalty, microseconds. `memory_excess` is
/// that of [`Trial`].
pub(super) fn penalized_us(time: PlanTime, memory_excess: f64) -> f64 {
    time.iteration_us * memory_excess.powi(MEMORY_PENALTY_POWER)
}

impl<'p> SearchStage<'p> {
    /// Creates a search stage without results. `single_gpu_us` is the time of an iteration on one
    /// GPU, microseconds.
    pub(super) fn new(evaluator: Evaluator<'p>, single_gpu_us: f64) -> Self {
        let graph_parts = GraphParts::new(evaluator.problem(), evaluator.structure());
        Self {
            evaluator,
            graph_parts,
            archive: Archive::default(),
            single_gpu_us,
            is_short_of_memory: false,
            is_budget_spent: false,
            known: FxHashMap::default(),
        }
    }

    /// Evaluates an arrangement and offers it to the archive. Fails with
    /// [`Error::Stopped`](crate::Error::Stopped) or
    /// [`Error::TooManyClasses`](crate::Error::TooManyClasses).
    pub(super) fn evaluate(&mut self, numbered: &NumberedArrangement) -> Result<Trial> {
        self.evaluate_until(numbered, |_, _| false)
    }

    /// As [`evaluate`](Self::evaluate), but stops once the archive dominates a lower bound of the
    /// times and `is_useless` returns true for that bound, which is then the trial's time.
    pub(super) fn evaluate_with_cutoff(
        &mut self,
        numbered: &NumberedArrangement,
        is_useless: impl Fn(PlanTime) -> bool,
    ) -> Result<Trial> {
        self.evaluate_until(numbered, |archive, minimum| archive.dominates(minimum) && is_useless(minimum))
    }

    /// Offers an arrangement to the archive, and stops its evaluation once the archive dominates a
    /// lower bound of its times.
    pub(super) fn offer(&mut self, numbered: &NumberedArrangement) -> Result<Trial> {
        self.evaluate_with_cutoff(numbered, |_| true)
    }

    /// [Offers](Self::offer) each of the arrangements.
    pub(super) fn offer_all(&mut self, all: &[NumberedArrangement]) -> Result<()> {
        all.iter().try_for_each(|numbered| self.offer(numbered).map(|_| ()))
    }

    /// Evaluates an arrangement until `is_enough` returns true for lower bounds of its times.
    /// Otherwise offers it to the archive. An arrangement is evaluated only once.
    fn evaluate_until(
        &mut self,
        numbered: &NumberedArrangement,
        is_enough: impl Fn(&Archive, PlanTime) -> bool,
    ) -> Result<Trial> {
        let key = FxBuildHasher.hash_one(numbered);
        let known = self.known.get(&key).copied();
        let known = known.filter(|known| known.is_exact || is_enough(&self.archive, known.time));
        let mut known = if let Some(known) = known {
            known
        } else {
            let (archive, is_exact) = (&self.archive, Cell::new(true));
            let is_known_enough = |minimum: PlanTime| {
                is_exact.set(!is_enough(archive, minimum));
                !is_exact.get()
            };
            let (time, _) = self.evaluator.time_with_cutoff(numbered, is_known_enough)?;
            Known { time, memory_excess: None, is_exact: is_exact.get() }
        };
        // The memory matters only for arrangements that are recorded or accepted.
        let is_useful = known.is_exact && !is_enough(&self.archive, known.time);
        if is_useful && known.memory_excess.is_none() {
            known.memory_excess = Some(self.evaluator.memory_excess(numbered)?);
        }
        if self.known.len() == MAX_KNOWN {
            self.known.clear();
        }
        self.known.insert(key, known);
        let Known { time, memory_excess, .. } = known;
        let memory_excess = memory_excess.unwrap_or(1.0);
        self.is_short_of_memory |= memory_excess > 1.0;
        let is_archived = is_useful
            && if memory_excess > 1.0 {
                self.archive.note_infeasible(memory_excess, time, numbered)
            } else {
                self.archive.offer(time, numbered)
            };
        Ok(Trial { time, memory_excess, is_archived })
    }

    /// Returns the number of nodes of the problem.
    pub(super) fn node_count(&self) -> usize {
        self.evaluator.problem().nodes.len()
    }

    /// Evaluates data parallelism on the first `gpus` ranks, if the cost model has times for it.
    /// With `only_options`, all nodes must have that count as an option.
    pub(super) fn data_parallel(&mut self, gpus: usize, only_options: bool) -> Result<()> {
        let group = self.evaluator.range(0, gpus);
        let nodes = self.node_count();
        let can_run = |node: usize| {
            if only_options {
                self.evaluator.is_option(node, group)
            } else {
                self.evaluator.has_times(node, group)
            }
        };
        if (0..nodes).all(can_run) {
            self.evaluate(&self.evaluator.all_on(group))?;
        }
        Ok(())
    }

    /// Places the branches of each region between a fork and a join of `from` side by side on the
    /// first `gpus` ranks, if that shortens the iteration. All arrangements that are tried are
    /// offered to the archive.
    pub(super) fn spread_branches(&mut self, mut from: NumberedArrangement, gpus: usize) -> Result<()> {
        let mut best = self.evaluate(&from)?;
        for index in 0..self.graph_parts.parallels.len() {
            let parallel = &self.graph_parts.parallels[index];
            let branches = parallel.branches.len();
            let spread: Vec<NumberedArrangement> = (2..=branches)
                .filter_map(|ranges| on_rank_ranges(&mut self.evaluator, &from, parallel, gpus, ranges))
                .collect();
            for candidate in spread {
                let trial = self.evaluate(&candidate)?;
                if trial.iteration_us() < best.iteration_us() {
                    (best, from) = (trial, candidate);
                }
            }
        }
        Ok(())
    }
}

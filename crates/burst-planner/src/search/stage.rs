//! A problem under search, with the results so far. An arrangement above the memory limit is
//! *infeasible*; its *memory penalty* is a factor of its iteration time above 1.

use std::rc::Rc;

use super::archive::Archive;
use super::graph_parts::GraphParts;
use super::moves::on_rank_ranges;
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement, PlanTime};
use crate::groups::Classes;

/// Exponent of the memory penalty: the time of an arrangement above the memory limit is multiplied
/// by (memory / limit) to this power. The search can pass through such arrangements but does not
/// end at one.
const MEMORY_PENALTY_POWER: i32 = 8;

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
}

/// Result of evaluating an arrangement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// Its time, or lower bounds of both times if the evaluation was [cut
    /// off](SearchStage::evaluate_with_cutoff).
    pub(super) time: PlanTime,
    /// Memory of its fullest rank divided by the limit; 1 if it is within the limit or there is
    /// none.
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
        Self { evaluator, graph_parts, archive: Archive::default(), single_gpu_us, is_short_of_memory: false }
    }

    /// Evaluates an arrangement and offers it to the archive. Fails with
    /// [`Error::Stopped`](crate::Error::Stopped) or
    /// [`Error::TooManyClasses`](crate::Error::TooManyClasses).
    pub(super) fn evaluate(&mut self, numbered: &NumberedArrangement) -> Result<Trial> {
        let (time, classes) = self.evaluator.time(numbered)?;
        Ok(self.record(numbered, time, &classes))
    }

    /// As [`evaluate`](Self::evaluate), but stops once the archive dominates a lower bound of the
    /// times and `is_useless` returns true for that bound, which is then the trial's time.
    pub(super) fn evaluate_with_cutoff(
        &mut self,
        numbered: &NumberedArrangement,
        is_useless: impl Fn(PlanTime) -> bool,
    ) -> Result<Trial> {
        let archive = &self.archive;
        let is_enough = |minimum: PlanTime| archive.dominates(minimum) && is_useless(minimum);
        let (time, classes) = self.evaluator.time_with_cutoff(numbered, is_enough)?;
        Ok(self.record(numbered, time, &classes))
    }

    /// As [`evaluate`](Self::evaluate), but returns `None` if the iteration takes longer than
    /// `slowest_us` microseconds. The arrangement is then not offered to the archive, and the
    /// evaluation stops early if possible.
    pub(super) fn evaluate_if_within(
        &mut self,
        numbered: &NumberedArrangement,
        slowest_us: f64,
    ) -> Result<Option<Trial>> {
        let is_too_slow = |minimum: PlanTime| minimum.iteration_us > slowest_us;
        let (time, classes) = self.evaluator.time_with_cutoff(numbered, is_too_slow)?;
        Ok((!is_too_slow(time)).then(|| self.record(numbered, time, &classes)))
    }

    fn record(&mut self, numbered: &NumberedArrangement, time: PlanTime, classes: &Classes) -> Trial {
        let memory_excess = self.evaluator.memory_excess(classes, &numbered.order);
        let is_archived = if memory_excess > 1.0 {
            self.is_short_of_memory = true;
            self.archive.note_infeasible(memory_excess, time, numbered)
        } else {
            self.archive.offer(time, numbered)
        };
        Trial { time, memory_excess, is_archived }
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
            let order = Rc::clone(self.evaluator.own_order());
            self.evaluate(&NumberedArrangement { groups: vec![group; nodes], order })?;
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

//! One problem that is searched, and what was found for it.

use std::rc::Rc;

use super::archive::Archive;
use super::graph_parts::GraphParts;
use super::moves::in_lanes;
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement, PlanTime};
use crate::groups::Classes;

/// An arrangement that is above the limit on memory counts as slower by so many times that, relatively: the way from one that has
/// room to another may lead through some that have not, but should not end there.
const MEMORY_PENALTY_POWER: i32 = 8;

/// A problem with what has been found for it so far.
pub(super) struct SearchStage<'p> {
    pub(super) evaluator: Evaluator<'p>,
    pub(super) shape: GraphParts,
    pub(super) archive: Archive,
    pub(super) single_gpu_us: f64,
    /// Whether an arrangement was met that some rank has no room for.
    pub(super) is_short_of_memory: bool,
}

/// What came of evaluating an arrangement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    /// What it takes; a lower bound of that where [this was enough](SearchStage::evaluate_with_cutoff).
    pub(super) time: PlanTime,
    /// By how much the fullest rank is above what it can hold: 1 where none is.
    pub(super) memory_excess: f64,
    /// Whether the archive took it in.
    pub(super) is_archived: bool,
}

impl Trial {
    /// The time of an iteration, and more where a rank has no room for what it holds.
    pub(super) fn iteration_us(&self) -> f64 {
        penalized_us(self.time, self.memory_excess)
    }
}

/// The time of an iteration, and more where a rank has no room for what it holds.
pub(super) fn penalized_us(time: PlanTime, memory_excess: f64) -> f64 {
    time.iteration_us * memory_excess.powi(MEMORY_PENALTY_POWER)
}

impl<'p> SearchStage<'p> {
    pub(super) fn new(evaluator: Evaluator<'p>, single_gpu_us: f64) -> Self {
        let shape = GraphParts::new(evaluator.problem(), evaluator.structure());
        Self { evaluator, shape, archive: Archive::default(), single_gpu_us, is_short_of_memory: false }
    }

    /// Evaluates an arrangement for the archive.
    pub(super) fn evaluate(&mut self, numbered: &NumberedArrangement) -> Result<Trial> {
        let (time, classes) = self.evaluator.time(numbered)?;
        Ok(self.take(numbered, time, &classes))
    }

    /// As [`offer`](Self::evaluate), but no longer than until it is certain that the archive does not take it in, and that it is of no use
    /// otherwise either: `is_of_no_use` is asked with lower bounds of its times, which are the trial's where it says so.
    pub(super) fn evaluate_with_cutoff(
        &mut self,
        numbered: &NumberedArrangement,
        is_of_no_use: impl Fn(PlanTime) -> bool,
    ) -> Result<Trial> {
        let archive = &self.archive;
        let is_enough = |least: PlanTime| archive.dominates(least) && is_of_no_use(least);
        let (time, classes) = self.evaluator.time_with_cutoff(numbered, is_enough)?;
        Ok(self.take(numbered, time, &classes))
    }

    /// As [`offer`](Self::evaluate), if an iteration does not take longer than that; an arrangement of which that is certain early is not
    /// evaluated to the end, and does not come into the archive.
    pub(super) fn evaluate_if_within(
        &mut self,
        numbered: &NumberedArrangement,
        slowest_us: f64,
    ) -> Result<Option<Trial>> {
        let is_too_slow = |least: PlanTime| least.iteration_us > slowest_us;
        let (time, classes) = self.evaluator.time_with_cutoff(numbered, is_too_slow)?;
        Ok((!is_too_slow(time)).then(|| self.take(numbered, time, &classes)))
    }

    fn take(&mut self, numbered: &NumberedArrangement, time: PlanTime, classes: &Classes) -> Trial {
        let memory_excess = self.evaluator.memory_excess(classes, &numbered.order);
        let is_archived = if memory_excess > 1.0 {
            self.is_short_of_memory = true;
            self.archive.note_infeasible(memory_excess, time, numbered)
        } else {
            self.archive.offer(time, numbered)
        };
        Trial { time, memory_excess, is_archived }
    }

    pub(super) fn node_count(&self) -> usize {
        self.evaluator.problem().nodes.len()
    }

    /// Every node on the first ranks, where the costs know so many, and if wished only where all nodes have it as an option.
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

    /// Lets branches run at the same time where that makes the iteration shorter.
    pub(super) fn spread_branches(&mut self, mut from: NumberedArrangement, gpus: usize) -> Result<()> {
        let mut best = self.evaluate(&from)?;
        for index in 0..self.shape.parallels.len() {
            let parallel = &self.shape.parallels[index];
            let branches = parallel.branches.len();
            let spread: Vec<NumberedArrangement> = (2..=branches)
                .filter_map(|lanes| in_lanes(&mut self.evaluator, &from, parallel, gpus, lanes))
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

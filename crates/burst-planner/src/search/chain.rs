//! Search for arrangements of a chain by [a model of their time](prefix_cost) that is much faster
//! than an evaluation. A *stretch* is a sequence of consecutive nodes that are placed as one at
//! first.

mod dynamic_programming;
mod front;
mod lists;
mod prefix_cost;
mod refine;
mod run;
mod steps;
mod transitions;

use std::ops::Range;
use std::rc::Rc;

use super::archive::Archive;
use super::stage::SearchStage;
use super::{Part, SearchOptions};
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement, PlanTime};
use lists::RankLists;
use run::NodeRun;
use steps::ChainSteps;

/// Relative differences of modelled times that distinguish arrangements. Near the minimum of GPU
/// time, a small increase saves much iteration time.
const DISTINCT: PlanTime = PlanTime { iteration_us: 1e-3, gpu_time_us: 1e-4 };
/// Arrangements whose modelled times are worse than an evaluated one by more than this, relatively,
/// are not evaluated.
const MARGIN: f64 = 1e-3;

/// A chain of nodes with cached model values.
pub(super) struct Chain {
    order: Rc<[u32]>,
    steps: ChainSteps,
    /// Nodes that are placed as one at first.
    stretches: Vec<Range<usize>>,
    lists: RankLists,
    /// Pareto-optimal arrangements by the model.
    candidates: Archive<Vec<NodeRun>>,
}

impl Chain {
    /// Creates a search for arrangements of the problem of `evaluator`, or returns `None` if its
    /// graph is not a chain. `counts` are the GPU counts that are tried, ascending, `lengths` the
    /// numbers of nodes of the stretches in topological order.
    pub(super) fn new(
        evaluator: &Evaluator<'_>,
        counts: &[usize],
        lengths: impl Iterator<Item = usize>,
    ) -> Option<Self> {
        let structure = evaluator.structure();
        let starts = structure.producers.iter().filter(|producers| producers.is_empty()).count();
        if structure.has_branches() || starts != 1 {
            return None;
        }
        let mut end = 0;
        let stretch = |length| {
            let start = end;
            end += length;
            start..end
        };
        Some(Self {
            order: Rc::clone(evaluator.own_order()),
            steps: ChainSteps::new(evaluator, counts),
            stretches: lengths.map(stretch).collect(),
            lists: RankLists::new(evaluator, counts),
            candidates: Archive::with_tolerance(DISTINCT),
        })
    }

    /// Returns Pareto-optimal arrangements on the first `gpus` ranks by the model, with their
    /// modelled times, without those on `fewer` ranks. `found` are additional starting points.
    fn proposed<'n>(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        (fewer, gpus): (usize, usize),
        found: impl Iterator<Item = &'n NumberedArrangement>,
        options: &SearchOptions,
    ) -> Vec<(PlanTime, NumberedArrangement)> {
        self.lists.use_first(gpus);
        self.steps.use_first(self.lists.usable());
        for numbered in found {
            if let Some(mut runs) = self.runs(evaluator, numbered) {
                self.offer(evaluator, None, 0, &mut runs);
            }
        }
        // Known arrangements prune labels.
        if options.uses(Part::ChainRefinement) {
            self.refine(evaluator);
        }
        if options.uses(Part::ChainProgramming) {
            for mut runs in self.dynamic_programming(evaluator) {
                self.offer(evaluator, None, 0, &mut runs);
            }
        }
        if options.uses(Part::ChainRefinement) {
            self.refine(evaluator);
        }
        let uses_more =
            |runs: &[NodeRun]| runs.iter().any(|run| self.lists.get(run.list).ranks.last() >= Some(&fewer));
        let proposed = self.candidates.starting_points().iter().filter(|entry| uses_more(&entry.arrangement));
        proposed.map(|entry| (entry.time, self.numbered(&entry.arrangement))).collect()
    }
}

impl SearchStage<'_> {
    /// Evaluates the arrangements on the first `gpus` ranks that the model of chains proposes,
    /// unless the archive dominates their modelled times by a margin. Arrangements on the first
    /// `fewer` ranks are left out. Fails as an evaluation does.
    pub(super) fn search_chain(
        &mut self,
        chain: &mut Chain,
        fewer: usize,
        gpus: usize,
        options: &SearchOptions,
    ) -> Result<()> {
        let found = self.archive.starting_points().iter().map(|entry| &entry.arrangement);
        for (time, numbered) in chain.proposed(&mut self.evaluator, (fewer, gpus), found, options) {
            let better = PlanTime {
                iteration_us: time.iteration_us * (1.0 - MARGIN),
                gpu_time_us: time.gpu_time_us * (1.0 - MARGIN),
            };
            if !self.archive.dominates(better) {
                self.offer(&numbered)?;
            }
        }
        Ok(())
    }
}

//! Arrangements of a chain, by [a model of its time](prefix_cost) that takes next to nothing.

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
use crate::Result;
use crate::evaluator::{Evaluator, NumberedArrangement, PlanTime};
use lists::RankLists;
use run::NodeRun;
use steps::ChainSteps;

/// By the model, arrangements are told apart if their times differ by more, relatively, or their GPU times. Near the least GPU time a
/// little more of it saves much time.
const DISTINCT: PlanTime = PlanTime { iteration_us: 1e-3, gpu_time_us: 1e-4 };
/// What seems to be worse than something that was evaluated by more than this, relatively, is not evaluated.
const MARGIN: f64 = 1e-3;

/// A chain, and what is known of it.
pub(super) struct Chain {
    order: Rc<[u32]>,
    steps: ChainSteps,
    /// Nodes that are placed together at first.
    stretches: Vec<Range<usize>>,
    lists: RankLists,
    /// What is worth choosing by the model.
    candidates: Archive<Vec<NodeRun>>,
}

impl Chain {
    /// `None` where nodes do not follow each other one by one. They are placed on these GPU counts, at first in stretches of such lengths.
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

    /// Arrangements on the first `gpus` ranks that seem to take little time for their GPU time, and what they seem to take. Those that
    /// `fewer` ranks are enough for are left out. `found` are some to begin with, beside the model's own.
    fn proposed<'n>(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        (fewer, gpus): (usize, usize),
        found: impl Iterator<Item = &'n NumberedArrangement>,
    ) -> Vec<(PlanTime, NumberedArrangement)> {
        self.lists.use_first(gpus);
        self.steps.use_first(self.lists.usable());
        for numbered in found {
            if let Some(mut runs) = self.runs(evaluator, numbered) {
                self.offer(evaluator, None, 0, &mut runs);
            }
        }
        for mut runs in self.dynamic_programming(evaluator) {
            self.offer(evaluator, None, 0, &mut runs);
        }
        self.refine(evaluator);
        let uses_more =
            |runs: &[NodeRun]| runs.iter().any(|run| self.lists.get(run.list).ranks.last() >= Some(&fewer));
        let proposed = self.candidates.starting_points().iter().filter(|entry| uses_more(&entry.arrangement));
        proposed.map(|entry| (entry.time, self.numbered(&entry.arrangement))).collect()
    }
}

impl SearchStage<'_> {
    /// Evaluates what the model of chains proposes, as far as it seems to be better than what was found.
    pub(super) fn search_chain(&mut self, chain: &mut Chain, fewer: usize, gpus: usize) -> Result<()> {
        let found = self.archive.starting_points().iter().map(|entry| &entry.arrangement);
        for (time, numbered) in chain.proposed(&mut self.evaluator, (fewer, gpus), found) {
            let better = PlanTime {
                iteration_us: time.iteration_us * (1.0 - MARGIN),
                gpu_time_us: time.gpu_time_us * (1.0 - MARGIN),
            };
            if !self.archive.dominates(better) {
                self.evaluate(&numbered)?;
            }
        }
        Ok(())
    }
}

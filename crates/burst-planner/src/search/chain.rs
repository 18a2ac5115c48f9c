//! Arrangements of a chain, by [a model of its time](taken) that takes next to nothing.

mod front;
mod lists;
mod one_after_another;
mod refine;
mod run;
mod steps;
mod taken;
mod ways;

use std::ops::Range;
use std::rc::Rc;

use super::archive::Archive;
use super::stage::Stage;
use crate::Result;
use crate::evaluator::{Evaluator, Numbered, PlanTime};
use lists::Lists;
use run::Run;
use steps::Steps;

/// By the model, arrangements are told apart if their times differ by more, relatively, or their GPU times. Near the least GPU time a
/// little more of it saves much time.
const APART: PlanTime = PlanTime { iteration_us: 1e-3, gpu_time_us: 1e-4 };
/// What seems to be worse than something that was evaluated by more than this, relatively, is not evaluated.
const MARGIN: f64 = 1e-3;

/// A chain, and what is known of it.
pub(super) struct Chain {
    order: Rc<[u32]>,
    steps: Steps,
    /// Nodes that are placed together at first.
    stretches: Vec<Range<usize>>,
    lists: Lists,
    /// What is worth choosing by the model.
    seeming: Archive<Vec<Run>>,
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
            steps: Steps::new(evaluator, counts),
            stretches: lengths.map(stretch).collect(),
            lists: Lists::new(evaluator, counts),
            seeming: Archive::telling_apart(APART),
        })
    }

    /// Arrangements on the first `gpus` ranks that seem to take little time for their GPU time, and what they seem to take. Those that
    /// `fewer` ranks are enough for are left out. `found` are some to begin with, beside the model's own.
    fn proposed<'n>(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        (fewer, gpus): (usize, usize),
        found: impl Iterator<Item = &'n Numbered>,
    ) -> Vec<(PlanTime, Numbered)> {
        self.lists.use_first(gpus);
        self.steps.use_first(self.lists.usable());
        for numbered in found {
            if let Some(mut runs) = self.runs(evaluator, numbered) {
                self.offer(evaluator, None, 0, &mut runs);
            }
        }
        for mut runs in self.one_after_another(evaluator) {
            self.offer(evaluator, None, 0, &mut runs);
        }
        self.refine(evaluator);
        let uses_more =
            |runs: &[Run]| runs.iter().any(|run| self.lists.get(run.list).ranks.last() >= Some(&fewer));
        let proposed = self.seeming.beginnings().iter().filter(|entry| uses_more(&entry.arrangement));
        proposed.map(|entry| (entry.time, self.numbered(&entry.arrangement))).collect()
    }
}

impl Stage<'_> {
    /// Evaluates what the model of chains proposes, as far as it seems to be better than what was found.
    pub(super) fn follow(&mut self, chain: &mut Chain, fewer: usize, gpus: usize) -> Result<()> {
        let found = self.archive.beginnings().iter().map(|entry| &entry.arrangement);
        for (time, numbered) in chain.proposed(&mut self.evaluator, (fewer, gpus), found) {
            let better = PlanTime {
                iteration_us: time.iteration_us * (1.0 - MARGIN),
                gpu_time_us: time.gpu_time_us * (1.0 - MARGIN),
            };
            if !self.archive.is_as_good(better) {
                self.offer(&numbered)?;
            }
        }
        Ok(())
    }
}

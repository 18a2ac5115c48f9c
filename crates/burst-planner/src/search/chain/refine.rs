//! Changes of what the model of chains proposes.

use super::Chain;
use super::prefix_cost::PrefixCost;
use super::run::NodeRun;
use crate::evaluator::{Evaluator, PlanTime};

/// So many nodes at most move over the end of a run at once.
const MAX_MOVED: usize = 3;
/// So many nodes form a run between two others.
const INSERTED_LENGTHS: [usize; 3] = [1, 3, 7];

impl Chain {
    /// Changes all that is worth choosing by the model, and what comes of that: nodes at the end of a run move to the next one or form one
    /// between the two, a run joins another one, or its list has a rank more, less or another one. Nothing is evaluated.
    pub(super) fn refine(&mut self, evaluator: &mut Evaluator<'_>) {
        while let Some(runs) = self.candidates.take_first_new() {
            self.vary(evaluator, &runs);
        }
    }

    fn vary(&mut self, evaluator: &mut Evaluator<'_>, runs: &[NodeRun]) {
        let mut changed: Vec<NodeRun> = Vec::with_capacity(runs.len() + 1);
        let (mut before, mut start) = (None, 0);
        for (index, run) in runs.iter().enumerate() {
            let next = runs.get(index + 1);
            let neighbours = self.lists.neighbours(evaluator, run.list).to_vec();
            let between = next.map(|next| self.lists.between(evaluator, run.list, next.list));
            let mut offer = |chain: &mut Self, change: &dyn Fn(&mut Vec<NodeRun>)| {
                changed.clear();
                changed.extend_from_slice(runs);
                change(&mut changed);
                chain.offer(evaluator, before.as_ref(), index, &mut changed);
            };
            for list in neighbours {
                offer(self, &|changed| changed[index].list = list);
            }
            if let Some(next) = next {
                for list in [run.list, next.list] {
                    offer(self, &|changed| {
                        changed[index].list = list;
                        changed[index + 1].list = list;
                    });
                }
                let earlier = (1..=MAX_MOVED).filter_map(|by| run.end.checked_sub(by));
                let ends = earlier.chain((1..=MAX_MOVED).map(|by| run.end + by));
                for end in ends.filter(|end| (start + 1..next.end).contains(end)) {
                    offer(self, &|changed| changed[index].end = end);
                }
                for list in between.into_iter().flatten() {
                    let earlier = INSERTED_LENGTHS.map(|length| (run.end.saturating_sub(length), run.end));
                    let later = INSERTED_LENGTHS.map(|length| (run.end, run.end + length));
                    for (from, to) in earlier.into_iter().chain(later) {
                        if start < from && to < next.end {
                            offer(self, &|changed| {
                                changed[index].end = from;
                                changed.insert(index + 1, NodeRun { end: to, list });
                            });
                        }
                    }
                }
            }
            before = self.after(evaluator, before.as_ref(), runs, index);
            start = run.end;
        }
    }

    /// Keeps runs that are worth choosing by the model, if those before the one with this index take what is `before`. Those that follow each
    /// other on the same list are joined.
    pub(super) fn offer(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        before: Option<&PrefixCost>,
        index: usize,
        runs: &mut Vec<NodeRun>,
    ) {
        let are_apart = runs.windows(2).all(|pair| pair[0].list != pair[1].list);
        if !are_apart {
            runs.dedup_by(|after, before| {
                let is_same = after.list == before.list;
                if is_same {
                    before.end = after.end;
                }
                is_same
            });
        }
        let (first, mut taken) = if are_apart { (index, before.copied()) } else { (0, None) };
        for index in first..runs.len() {
            let Some(next) = self.after(evaluator, taken.as_ref(), runs, index) else { return };
            // Most changes are in vain, which shows at once.
            if index == first && self.is_dominated(&next, runs[index].end) {
                return;
            }
            taken = Some(next);
        }
        if let Some(taken) = taken {
            self.candidates.offer(taken.time(), &runs[..]);
        }
    }

    /// Whether nodes that take this, with all others at their least, are no better than something known.
    fn is_dominated(&self, taken: &PrefixCost, end: usize) -> bool {
        let to_come = self.steps.least_after(end);
        self.candidates.dominates(PlanTime {
            iteration_us: taken.iteration_us() + to_come.time_us,
            gpu_time_us: taken.gpu_us() + to_come.gpu_us,
        })
    }
}

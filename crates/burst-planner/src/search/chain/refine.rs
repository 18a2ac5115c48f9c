//! Local search by the model of chains. A *run* is a sequence of consecutive nodes on the same list
//! of ranks; the runs of an arrangement cover all nodes.

use super::Chain;
use super::prefix_cost::PrefixCost;
use super::run::NodeRun;
use crate::evaluator::{Evaluator, PlanTime};

/// Maximum number of nodes that move across the end of a run at once.
const MAX_MOVED: usize = 3;
/// Lengths of runs that are inserted between two others.
const INSERTED_LENGTHS: [usize; 3] = [1, 3, 7];

impl Chain {
    /// Applies moves to all Pareto-optimal arrangements of the model, and to the results: nodes at
    /// the end of a run move to the next one or form a run between the two, a run joins another
    /// one, or a rank is added to its list, removed or replaced. Nothing is evaluated.
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

    /// Adds the arrangement of `runs` to the archive if it is Pareto-optimal by the model. `before`
    /// is the cost of the runs before the one with index `index`, `None` if it is not known or
    /// there are none. Adjacent runs on the same list are joined.
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
        let (first, mut cost) = if are_apart { (index, before.copied()) } else { (0, None) };
        for index in first..runs.len() {
            let Some(next) = self.after(evaluator, cost.as_ref(), runs, index) else { return };
            // Most moves are dominated, which is known early.
            if index == first && self.is_dominated(&next, runs[index].end) {
                return;
            }
            cost = Some(next);
        }
        if let Some(cost) = cost {
            self.candidates.offer(cost.time(), &runs[..]);
        }
    }

    /// Returns whether nodes with this cost, with the minimum for all others, are dominated by a
    /// known arrangement.
    fn is_dominated(&self, cost: &PrefixCost, end: usize) -> bool {
        let to_come = self.steps.min_after(end);
        self.candidates.dominates(PlanTime {
            iteration_us: cost.iteration_us() + to_come.time_us,
            gpu_time_us: cost.gpu_us() + to_come.gpu_us,
        })
    }
}

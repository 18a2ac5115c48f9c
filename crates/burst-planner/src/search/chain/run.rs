//! Arrangements of a chain as runs of nodes, and their modelled times. A *place* is the index of a
//! node in topological order.

use std::ops::Range;
use std::rc::Rc;

use super::super::systematic::runs;
use super::Chain;
use super::lists::{ListId, RankLists};
use super::prefix_cost::PrefixCost;
use super::steps::ChainSteps;
use crate::evaluator::{Evaluator, NumberedArrangement};

/// A run: consecutive nodes on the same list of ranks. It starts at the end of the run before, or
/// at place 0.
#[derive(Debug, Clone, Copy)]
pub(super) struct NodeRun {
    /// Place after the last node.
    pub(super) end: usize,
    /// The list of ranks.
    pub(super) list: ListId,
}

impl Chain {
    /// Returns the runs of an arrangement, or `None` if the ranks of a list are not ascending.
    pub(super) fn runs(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        numbered: &NumberedArrangement,
    ) -> Option<Vec<NodeRun>> {
        let run = |places: Range<usize>| {
            let first = numbered.order[places.start] as usize;
            let ranks = Rc::clone(evaluator.ranks(numbered.groups[first]));
            ranks.is_sorted().then(|| NodeRun { end: places.end, list: self.lists.of(evaluator, &ranks) })
        };
        runs(numbered).into_iter().map(run).collect()
    }

    /// Returns the arrangement of `runs`, which cover all nodes, in topological order.
    pub(super) fn numbered(&self, runs: &[NodeRun]) -> NumberedArrangement {
        let mut groups = vec![0; self.order.len()];
        let mut start = 0;
        for run in runs {
            for &node in &self.order[start..run.end] {
                groups[node as usize] = self.lists.get(run.list).group;
            }
            start = run.end;
        }
        NumberedArrangement { groups, splits: None, order: Rc::clone(&self.order) }
    }

    /// Returns the cost of the runs up to and including the one with index `index`. `before` is the
    /// cost of the runs before it, `None` for the first one. Returns `None` if a node cannot run on
    /// the number of ranks of its list.
    pub(super) fn after(
        &mut self,
        evaluator: &mut Evaluator<'_>,
        before: Option<&PrefixCost>,
        runs: &[NodeRun],
        index: usize,
    ) -> Option<PrefixCost> {
        let run = runs[index];
        let last = index.checked_sub(1).map(|last| runs[last]);
        let start = last.map_or(0, |last| last.end);
        let step = self.steps.cost_on(self.lists.get(run.list).count?, &(start..run.end))?;
        let cost = match (before, last) {
            (Some(before), Some(last)) => {
                let moving = self.lists.moving(evaluator, self.order[start - 1], last.list, run.list);
                before.after(&moving, self.lists.get(run.list).mask, &step)
            }
            _ => PrefixCost::first(self.lists.get(run.list), &step),
        };
        let places = RunContext { nodes: start..run.end, list: run.list, before: last.map(|last| last.list) };
        Some(places.ended(evaluator, &self.steps, &mut self.lists, cost))
    }
}

/// A run, with the list of the run before.
pub(super) struct RunContext {
    /// Places of the nodes of the run.
    pub(super) nodes: Range<usize>,
    /// The list of the run.
    pub(super) list: ListId,
    /// The list of the run before; `None` for the first run.
    pub(super) before: Option<ListId>,
}

impl RunContext {
    /// Adds the all-reduces of the run to `cost`, the cost of all nodes up to its end. No more
    /// nodes follow on the same list, so the buckets of the run are known.
    pub(super) fn ended(
        &self,
        evaluator: &mut Evaluator<'_>,
        steps: &ChainSteps,
        lists: &mut RankLists,
        cost: PrefixCost,
    ) -> PrefixCost {
        let Some(reducing) = lists.reducing(evaluator, steps, &self.nodes, self.list) else { return cost };
        let list = lists.get(self.list);
        let ranks_of_segment = lists.gpus as f64 / lists.segments() as f64;
        if let Some(before) = self.before {
            let beside = list.mask & !lists.get(before).mask;
            let beside = f64::from(beside.count_ones()) * ranks_of_segment;
            cost.reduced(&reducing, list.ranks.len() as f64, beside)
        } else {
            cost.with_last(list.mask, &reducing, ranks_of_segment)
        }
    }
}

//! Dynamic programming along a chain. A *stretch* is a sequence of consecutive nodes that are
//! placed as one, a *run* a sequence of consecutive nodes on the same list of ranks. A *label* is a
//! choice of lists for the first stretches.

use super::Chain;
use super::front::{Label, LabelFront};
use super::lists::ListId;
use super::prefix_cost::PrefixCost;
use super::run::{NodeRun, RunContext};
use super::transitions::Transitions;
use crate::evaluator::{Evaluator, PlanTime};

impl Chain {
    /// Returns the arrangements of the labels that are kept after the last stretch, each as its
    /// runs in order. Computes the [front](LabelFront) after each stretch from the one before.
    /// Labels that known arrangements dominate are pruned. O(stretches x labels x transitions).
    pub(super) fn dynamic_programming(&mut self, evaluator: &mut Evaluator<'_>) -> Vec<Vec<NodeRun>> {
        let known: Vec<PlanTime> = self.candidates.starting_points().iter().map(|entry| entry.time).collect();
        let mut ways = Transitions::new(&mut self.lists);
        // By expanded label: its list, and the label of the stretch before.
        let mut predecessors: Vec<(ListId, u32)> = Vec::new();
        let mut front = LabelFront::default();
        for stretch in &self.stretches {
            let minimum = [0, stretch.start, stretch.end].map(|place| self.steps.min_after(place));
            let mut next = LabelFront::new(ways.counts, ways.lists.segments(), [minimum[0], minimum[2]]);
            if stretch.start == 0 {
                for (count, list) in ways.first(evaluator).into_iter().enumerate() {
                    let Some(step) = self.steps.cost_on(count, stretch) else { continue };
                    let cost = PrefixCost::first(ways.lists.get(list), &step);
                    let iteration_us = cost.iteration_us();
                    let predecessor = u32::MAX;
                    next.offer(
                        count,
                        Label {
                            cost,
                            iteration_us,
                            list,
                            source_list: list,
                            start: 0,
                            before: None,
                            predecessor,
                        },
                    );
                }
            } else {
                ways.set_producer(self.order[stretch.start - 1]);
            }
            for label in front.labels() {
                let so_far = PlanTime { iteration_us: label.iteration_us, gpu_time_us: label.cost.gpu_us() };
                if minimum[1].is_dominated(so_far, &known) {
                    continue;
                }
                predecessors.push((label.list, label.predecessor));
                let predecessor = predecessors.len() as u32 - 1;
                let run =
                    RunContext { nodes: label.start..stretch.start, list: label.list, before: label.before };
                let ended = run.ended(evaluator, &self.steps, ways.lists, label.cost);
                let tails_us = [label.cost.tail_us(), ended.tail_us()];
                for way in ways.from(evaluator, label) {
                    let Some(step) = self.steps.cost_on(way.count, stretch) else { continue };
                    let (base, tail_us) =
                        if way.moving.is_none() { (&label.cost, tails_us[0]) } else { (&ended, tails_us[1]) };
                    let (min_us, gpu_us) = base.min_after(tail_us, way.moving.as_ref(), &step);
                    if next.is_useless(way.count, min_us, gpu_us) {
                        continue;
                    }
                    let (cost, start, before) = match &way.moving {
                        None => (label.cost.with(way.mask, &step), label.start, label.before),
                        Some(moving) => {
                            (ended.after(moving, way.mask, &step), stretch.start, Some(label.list))
                        }
                    };
                    let iteration_us = cost.iteration_us();
                    let (list, source_list) = (way.to, way.source_list);
                    next.offer(
                        way.count,
                        Label { cost, iteration_us, list, source_list, start, before, predecessor },
                    );
                }
            }
            front = next;
        }
        front.labels().map(|label| self.followed(label, &predecessors)).collect()
    }

    /// Returns the runs that lead to a label.
    fn followed(&self, label: &Label, predecessors: &[(ListId, u32)]) -> Vec<NodeRun> {
        let (mut list, mut predecessor) = (label.list, label.predecessor);
        let mut runs: Vec<NodeRun> = Vec::new();
        for stretch in self.stretches.iter().rev() {
            if runs.last().is_none_or(|run| run.list != list) {
                runs.push(NodeRun { end: stretch.end, list });
            }
            if let Some(&before) = predecessors.get(predecessor as usize) {
                (list, predecessor) = before;
            }
        }
        runs.reverse();
        runs
    }
}

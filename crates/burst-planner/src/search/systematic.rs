//! Systematic local search from the best arrangements, which finds moves that random search misses.
//! A *run* is a sequence of consecutive nodes of the order on the same list of ranks.

use std::hash::Hash;
use std::ops::Range;

use rustc_hash::FxHashSet;

use super::stage::SearchStage;
use crate::Result;
use crate::evaluator::NumberedArrangement;
use crate::groups::GroupId;

/// Budgets of GPU time, as multiples of the time on one GPU.
const BUDGETS: [f64; 4] = [f64::INFINITY, 2.0, 1.5, 1.2];

/// Maximum number of runs of an arrangement of which runs move beside others. With many runs, this
/// is rarely an improvement, and there are many such moves.
const MAX_RUNS: usize = 12;

/// Places in the order whose nodes move to a group.
type Change = (Range<usize>, GroupId);

impl SearchStage<'_> {
    /// Improves the fastest arrangements on the first `gpus` ranks within some budgets of GPU time
    /// until no move is an improvement. A move takes
    ///
    /// - a run of nodes, or its second half, to the next smaller or larger of the GPU counts
    ///   `counts`;
    /// - a run, or all nodes from it on, to ranks that an adjacent run does not use, where its
    ///   updates start earlier: with its count, the next ones, or for the last run any power of
    ///   two;
    /// - a node at the end of a run to the adjacent run or to a count between those of the two,
    ///   which avoids transfers from many ranks to few at once.
    ///
    /// A move that failed is not tried again within the same budget.
    pub(super) fn systematic_descent(&mut self, gpus: usize, counts: &[usize]) -> Result<()> {
        let changes = |stage: &mut Self, from: &_| stage.systematic_changes(from, gpus, counts);
        self.descend(changes, |stage, from, change| stage.moved(from, change), u64::MAX)?;
        Ok(())
    }

    /// Improves the fastest arrangements within some budgets of GPU time until no change is an
    /// improvement. `changes` returns those of an arrangement, and `apply` the arrangement after
    /// one of them, or `None` if it is not possible. A change that failed is not tried again within
    /// the same budget. Returns whether it ended early because this stage has evaluated
    /// `max_evaluations` arrangements.
    pub(super) fn descend<C: Eq + Hash, I: IntoIterator<Item = C>>(
        &mut self,
        changes: impl Fn(&mut Self, &NumberedArrangement) -> I,
        apply: impl Fn(&mut Self, &NumberedArrangement, &C) -> Option<NumberedArrangement>,
        max_evaluations: u64,
    ) -> Result<bool> {
        let mut polished: Vec<NumberedArrangement> = Vec::new();
        for budget in BUDGETS {
            let mut failures = FxHashSet::default();
            while let Some(fastest) = self.archive.within(budget * self.single_gpu_us) {
                let fastest = fastest.arrangement.clone();
                if polished.contains(&fastest) {
                    break;
                }
                for change in changes(self, &fastest) {
                    if failures.contains(&change) {
                        continue;
                    }
                    if self.evaluator.evaluations >= max_evaluations {
                        return Ok(true);
                    }
                    let Some(changed) = apply(self, &fastest, &change) else { continue };
                    if !self.offer(&changed)?.is_archived {
                        failures.insert(change);
                    }
                }
                polished.push(fastest);
            }
        }
        Ok(false)
    }

    fn systematic_changes(
        &mut self,
        from: &NumberedArrangement,
        gpus: usize,
        counts: &[usize],
    ) -> Vec<Change> {
        let runs = runs(from);
        let mut changes: Vec<Change> = Vec::new();
        let ranks_of = |run: &Range<usize>| from.groups[from.order[run.start] as usize];
        let mut lists: Vec<Vec<usize>> = Vec::with_capacity(runs.len());
        for run in &runs {
            lists.push(self.evaluator.ranks(ranks_of(run)).to_vec());
        }
        let outside = |ranks: &[usize]| -> Vec<usize> {
            let mut is_inside = vec![false; gpus];
            for &rank in ranks {
                is_inside[rank] = true;
            }
            (0..gpus).filter(|&rank| !is_inside[rank]).collect()
        };
        for (index, (run, ranks)) in runs.iter().zip(&lists).enumerate() {
            let many = ranks.len();
            let smaller = counts.iter().copied().rfind(|&count| count < many);
            let larger = counts.iter().copied().find(|&count| count > many && count <= gpus);
            let others = outside(ranks);
            for count in smaller.into_iter().chain(larger) {
                let mut wanted: Vec<usize> = ranks.iter().chain(&others).copied().take(count).collect();
                wanted.sort_unstable();
                changes.push((run.clone(), self.evaluator.group(&wanted)));
                let first = self.evaluator.range(0, count);
                changes.extend([(run.clone(), first), (run.start + run.len() / 2..run.end, first)]);
            }
            if runs.len() > MAX_RUNS {
                continue;
            }
            let before = index.checked_sub(1).map(|before| &lists[before]);
            let is_last = index + 1 == runs.len();
            let powers = counts.iter().copied().filter(|count| is_last && count.is_power_of_two());
            let beside: Vec<usize> =
                [Some(many), smaller, larger].into_iter().flatten().chain(powers).collect();
            for neighbour in before.into_iter().chain(lists.get(index + 1)) {
                let free = outside(neighbour);
                for &count in beside.iter().filter(|&&count| count <= free.len()) {
                    let group = self.evaluator.group(&free[..count]);
                    changes.extend([(run.clone(), group), (run.start..from.order.len(), group)]);
                }
            }
        }
        for pair in runs.windows(2) {
            let (last, next) = (pair[0].end - 1, pair[1].start);
            changes.extend([(last..last + 1, ranks_of(&pair[1])), (next..next + 1, ranks_of(&pair[0]))]);
            let [first, second] =
                [&pair[0], &pair[1]].map(|run| self.evaluator.ranks(ranks_of(run)).to_vec());
            let (few, many) = if first.len() < second.len() { (first, second) } else { (second, first) };
            for &count in counts.iter().filter(|&&count| (few.len() + 1..many.len()).contains(&count)) {
                let others = many.iter().filter(|rank| !few.contains(rank));
                let mut between: Vec<usize> = few.iter().chain(others).copied().take(count).collect();
                between.sort_unstable();
                let between = self.evaluator.group(&between);
                changes.extend([(last..last + 1, between), (next..next + 1, between)]);
            }
        }
        changes
    }

    /// Applies a move, if the nodes can run on that count.
    fn moved(&self, from: &NumberedArrangement, (places, group): &Change) -> Option<NumberedArrangement> {
        let mut changed = from.clone();
        for place in places.clone() {
            let node = from.order[place] as usize;
            if !self.evaluator.is_option(node, *group) {
                return None;
            }
            changed.groups[node] = *group;
        }
        Some(changed)
    }
}

/// Returns the ranges of places in the order of the runs of an arrangement, in order.
pub(super) fn runs(of: &NumberedArrangement) -> Vec<Range<usize>> {
    let mut end = 0;
    let runs = of.order.chunk_by(|&a, &b| of.groups[a as usize] == of.groups[b as usize]);
    runs.map(|run| {
        let start = end;
        end += run.len();
        start..end
    })
    .collect()
}

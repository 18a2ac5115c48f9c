//! Randomized improvement of arrangements. A *move* is a random change of an arrangement on the
//! first `gpus` ranks. Evaluated arrangements are offered to the archive of Pareto-optimal ones.

use std::rc::Rc;

use rand_chacha::ChaCha8Rng;

use super::archive::RELATIVE_TOLERANCE;
use super::move_mix::{MoveMix, REVERSING, USUAL};
use super::moves::Moves;
use super::random::below;
use super::stage::{SearchStage, Trial, penalized_us};
use crate::Result;
use crate::evaluator::{NumberedArrangement, PlanTime};

/// Budgets of GPU time, as multiples of the time on one GPU.
const BUDGETS: [f64; 10] = [f64::INFINITY, 1.02, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.5];

/// Number of moves per node without improvement after which the next budget follows.
const BUDGET_PATIENCE: usize = 300;
/// Number of moves without effect on the archive after which it is no longer changed.
const ARCHIVE_PATIENCE: usize = 3_000;
/// Maximum distance in the archive between two arrangements that are combined.
const NEIGHBOURS: usize = 4;
/// The fastest arrangement is chosen in one of this many cases.
const FASTEST: usize = 6;
/// Number of moves per node without improvement after which a descent ends.
const DESCENT_PATIENCE: usize = 20;
/// Number of moves without effect per pair of nodes and GPU after which descents end: several times
/// the number of neighbours of an arrangement.
const DESCENTS_PATIENCE: f64 = 150.0;
/// Maximum number of moves at once at the start of a descent.
const MAX_CHANGES: usize = 6;

impl SearchStage<'_> {
    /// Improves the best arrangements within several budgets of GPU time by `moves` moves in total.
    /// At first, a move that makes an arrangement worse by less than `threshold`, relatively, is
    /// accepted; later only improvements are (threshold accepting: G. Dueck, T. Scheuer, Journal of
    /// Computational Physics 90, 1990).
    pub(super) fn improve(
        &mut self,
        gpus: usize,
        moves: usize,
        threshold: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        for budget in BUDGETS {
            let budget_us = budget * self.single_gpu_us;
            self.improve_within(gpus, budget_us, moves.div_ceil(BUDGETS.len()), threshold, random)?;
        }
        Ok(())
    }

    fn improve_within(
        &mut self,
        gpus: usize,
        budget_us: f64,
        moves: usize,
        threshold: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        let Some(best) = self.archive.within(budget_us) else { return Ok(()) };
        let mut now = best.arrangement.clone();
        let mut now_score = score(best.time, best.memory_excess, budget_us);
        let (mut minimum, mut failures) = (now_score, 0);
        for index in 0..moves {
            if failures >= BUDGET_PATIENCE * self.node_count() {
                return Ok(());
            }
            failures += 1;
            let Some(changed) = self.draw(&now, gpus, USUAL, random) else { continue };
            let left = 1.0 - index as f64 / moves as f64;
            let accepted_below = now_score * (1.0 + threshold * left * left);
            let is_too_slow = |minimum| score(minimum, 1.0, budget_us) >= accepted_below;
            let changed_score = score_of(self.evaluate_with_cutoff(&changed, is_too_slow)?, budget_us);
            if changed_score < accepted_below {
                (now, now_score) = (changed, changed_score);
            }
            if changed_score < minimum {
                (minimum, failures) = (changed_score, 0);
            }
        }
        self.is_budget_spent |= moves > 0;
        Ok(())
    }

    /// Iterated local search (H. Lourenço, O. Martin, T. Stützle, Handbook of Metaheuristics,
    /// 2003), with at most `evaluations` evaluations.
    ///
    /// Each descent starts from a random entry of the archive to which several moves are applied at
    /// once. It accepts moves that do not make the arrangement slower within its GPU time, until
    /// many moves fail. The search ends early if the archive does not change for long; `effort`
    /// multiplies that number of moves.
    pub(super) fn iterated_local_search(
        &mut self,
        gpus: usize,
        evaluations: usize,
        effort: f64,
        random: &mut ChaCha8Rng,
    ) -> Result<()> {
        let (mut left, mut failures) = (evaluations, 0);
        let neighbours = (self.node_count().pow(2) * gpus) as f64;
        let patience = (effort * DESCENTS_PATIENCE * neighbours) as usize;
        while left > 0 && failures < patience {
            let entries = self.archive.starting_points();
            if entries.is_empty() {
                return Ok(());
            }
            let from = entries[below(random, entries.len())].clone();
            let (mut now, budget_us) = (from.arrangement, from.time.gpu_time_us);
            for _ in 0..=below(random, MAX_CHANGES) {
                now = self.draw(&now, gpus, REVERSING, random).unwrap_or(now);
            }
            let mut now_score = score_of(self.evaluate(&now)?, budget_us);
            left -= 1;
            let mut since_better = 0;
            while left > 0 && since_better < DESCENT_PATIENCE * self.node_count() {
                (since_better, failures) = (since_better + 1, failures + 1);
                let Some(changed) = self.draw(&now, gpus, REVERSING, random) else { continue };
                left -= 1;
                let is_too_slow = |minimum| score(minimum, 1.0, budget_us) > now_score;
                let trial = self.evaluate_with_cutoff(&changed, is_too_slow)?;
                if trial.is_archived {
                    failures = 0;
                }
                let changed_score = score_of(trial, budget_us);
                // A different arrangement with the same time can lead to faster ones.
                if changed_score <= now_score {
                    if changed_score < now_score * (1.0 - RELATIVE_TOLERANCE) {
                        since_better = 0;
                    }
                    (now, now_score) = (changed, changed_score);
                }
            }
        }
        self.is_budget_spent |= evaluations > 0 && left == 0;
        Ok(())
    }

    /// Applies moves to random entries of the archive, to the fastest one more often: one, two or
    /// more moves at once (a simple evolutionary multi-objective optimizer: O. Giel, Congress on
    /// Evolutionary Computation, 2003), or combines the first nodes of one entry and the remaining
    /// nodes of one that is nearly as fast (path relinking: F. Glover, Interfaces in Computer
    /// Science and Operations Research, 1997). Pareto-optimal results enter the archive. It ends
    /// early if the archive does not change for long. At most `evaluations` arrangements are
    /// evaluated.
    pub(super) fn evolve(&mut self, gpus: usize, evaluations: usize, random: &mut ChaCha8Rng) -> Result<()> {
        let mut failures = 0;
        for _ in 0..evaluations {
            if failures >= ARCHIVE_PATIENCE {
                return Ok(());
            }
            failures += 1;
            let entries = self.archive.starting_points();
            if entries.is_empty() {
                return Ok(());
            }
            let is_fastest = below(random, FASTEST) == 0;
            let at = if is_fastest { 0 } else { below(random, entries.len()) };
            let from = &entries[at].arrangement;
            let changed = if below(random, 3) == 0 {
                let other = (at + 1 + below(random, NEIGHBOURS)).min(entries.len() - 1);
                let place = below(random, from.order.len());
                let pair = [from, &entries[other].arrangement];
                let [first, second] = if below(random, 2) == 0 { pair } else { [pair[1], pair[0]] };
                Some(combined(first, second, place)).filter(|combined| combined != from)
            } else {
                self.changed(from.clone(), gpus, random)
            };
            let Some(changed) = changed else { continue };
            if self.offer(&changed)?.is_archived {
                failures = 0;
            }
        }
        self.is_budget_spent |= evaluations > 0;
        Ok(())
    }

    /// Applies one, two or more random moves.
    fn changed(
        &mut self,
        mut from: NumberedArrangement,
        gpus: usize,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let mut is_changed = false;
        loop {
            if let Some(next) = self.draw(&from, gpus, USUAL, random) {
                (from, is_changed) = (next, true);
            }
            if below(random, 2) == 0 {
                return is_changed.then_some(from);
            }
        }
    }

    /// Applies a random move of a kind in `mix` to `from`. Returns `None` if it has no effect or is
    /// not possible.
    pub(super) fn draw(
        &mut self,
        from: &NumberedArrangement,
        gpus: usize,
        mix: MoveMix,
        random: &mut ChaCha8Rng,
    ) -> Option<NumberedArrangement> {
        let is_short_of_memory = self.is_short_of_memory;
        let moves = Moves { graph_parts: &self.graph_parts, gpus, is_short_of_memory, mix };
        moves.draw(&mut self.evaluator, from, random)
    }
}

/// Returns the iteration time with penalties for exceeding the budget of GPU time or the memory
/// limit.
fn score(time: PlanTime, memory_excess: f64, budget_us: f64) -> f64 {
    let over = (time.gpu_time_us / budget_us).max(1.0);
    penalized_us(time, memory_excess) * over.powi(3)
}

fn score_of(trial: Trial, budget_us: f64) -> f64 {
    score(trial.time, trial.memory_excess, budget_us)
}

/// Combines two arrangements: nodes up to a place in the order are as in the first one, all others
/// as in the second one.
fn combined(first: &NumberedArrangement, second: &NumberedArrangement, place: usize) -> NumberedArrangement {
    let mut groups = second.groups.clone();
    for &node in &first.order[..place] {
        groups[node as usize] = first.groups[node as usize];
    }
    NumberedArrangement { groups, splits: None, order: Rc::clone(&first.order) }
}

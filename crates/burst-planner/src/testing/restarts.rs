//! A simple search with random restarts, to compare with.

use std::time::{Duration, Instant};

use super::problems::{Draws, random_arrangement, some_ranks};
use crate::{Arrangement, CostModel, Evaluator, Plan, PlanProblem, PlanTime, Result};

/// Limit of the search effort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Maximum number of evaluations; the result is then deterministic.
    Evaluations(u64),
    /// Maximum wall-clock time.
    Time(Duration),
}

/// Searches for a fast arrangement whose amplification is at most `limit` by local search: from
/// random arrangements, from data parallelism, and from the best one so far with a few random
/// moves. Moves that do not make the arrangement worse are accepted, until a large number fails.
/// Returns `None` if nothing within the limit is found.
///
/// # Errors
/// Those of [`Evaluator::new`] and [`Evaluator::single_gpu_us`], and
/// [`NoTimes`](crate::Error::NoTimes).
pub fn random_restarts(
    problem: &PlanProblem,
    costs: &dyn CostModel,
    limit: f64,
    budget: Budget,
    seed: u64,
) -> Result<Option<Plan>> {
    let mut evaluator = Evaluator::new(problem, costs)?;
    let budget_us = limit * evaluator.single_gpu_us()? * (1.0 + 1e-9);
    let mut draws = Draws::new(seed);
    let (begun, mut evaluations, mut restarts) = (Instant::now(), 0, 0);
    let mut best: Option<Plan> = None;
    let score = |time: PlanTime| time.iteration_us * (time.gpu_time_us / budget_us).max(1.0).powi(4);
    let patience = 60 * problem.nodes.len();
    loop {
        let mut now = match (restarts % 3, &best) {
            (0, Some(best)) => {
                let changes = 1 + draws.below(4);
                (0..changes).fold(best.arrangement.clone(), |from, _| {
                    changed(problem, &from, &mut draws).unwrap_or(from)
                })
            }
            (1, _) => {
                let gpus = 1 + draws.below(problem.gpus);
                let everywhere = Arrangement::data_parallel(problem, gpus)?;
                let is_possible = problem.nodes.iter().all(|node| node.gpu_counts.contains(&gpus));
                if is_possible { everywhere } else { random_arrangement(problem, draws.next()) }
            }
            _ => random_arrangement(problem, draws.next()),
        };
        restarts += 1;
        let mut now_score = f64::INFINITY;
        let mut candidate = now.clone();
        let mut vain = 0;
        while vain < patience {
            let is_over = match budget {
                Budget::Evaluations(maximum) => evaluations >= maximum,
                Budget::Time(maximum) => begun.elapsed() >= maximum,
            };
            if is_over {
                return Ok(best);
            }
            evaluations += 1;
            let time = evaluator.evaluate(&candidate)?;
            let is_best = best.as_ref().is_none_or(|best| time.iteration_us < best.time.iteration_us);
            if time.gpu_time_us <= budget_us && is_best {
                best = Some(Plan { time, arrangement: candidate.clone() });
            }
            vain += 1;
            if score(time) <= now_score {
                if score(time) < now_score * (1.0 - 1e-9) {
                    vain = 0;
                }
                (now, now_score) = (candidate, score(time));
            }
            candidate = loop {
                if let Some(changed) = changed(problem, &now, &mut draws) {
                    break changed;
                }
            };
        }
    }
}

/// Applies a random move. Returns `None` if it is not possible.
fn changed(problem: &PlanProblem, from: &Arrangement, draws: &mut Draws) -> Option<Arrangement> {
    let mut to = from.clone();
    let nodes = problem.nodes.len();
    let place = draws.below(nodes);
    let node = from.order[place];
    match draws.below(6) {
        // Another place in the order: as far as possible, or on the way there.
        0 if nodes > 1 => {
            let other = draws.below(nodes);
            to.order.remove(place);
            to.order.insert(other, node);
            to.validate(problem).ok()?;
        }
        // The ranks of another node, for one node or for several consecutive ones.
        1 | 2 => {
            let ranks = from.ranks[draws.below(nodes)].clone();
            let end = (place + 1 + draws.below(nodes)).min(nodes);
            let end = if draws.below(2) == 0 { place + 1 } else { end };
            for &node in &from.order[place..end] {
                if problem.nodes[node].gpu_counts.contains(&ranks.len()) {
                    to.ranks[node].clone_from(&ranks);
                }
            }
        }
        // Consecutive ranks from a random one on.
        3 | 4 => {
            let count = some_count(problem, node, draws);
            let first = if draws.below(2) == 0 { 0 } else { draws.below(problem.gpus - count + 1) };
            to.ranks[node] = (first..first + count).collect();
        }
        _ => {
            let count = some_count(problem, node, draws);
            to.ranks[node] = some_ranks(problem.gpus, count, draws);
            to.ranks[node].sort_unstable();
        }
    }
    Some(to)
}

fn some_count(problem: &PlanProblem, node: usize, draws: &mut Draws) -> usize {
    let counts = &problem.nodes[node].gpu_counts;
    counts[draws.below(counts.len())].min(problem.gpus)
}

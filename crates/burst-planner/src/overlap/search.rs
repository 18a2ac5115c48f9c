//! A fast plan when all-reduces overlap, and how far from optimal it can be.
//!
//! What the lane makes of a choice is no sum, but bounded by sums: from the end of the backward pass of any node `v` on,
//! all all-reduces up to `v` in program order have to run, and at most the backward passes before `v` hide them. So
//!
//! ```text
//! iteration time >= additive time without all-reduces
//!                   + sum over v of share(v) * (all-reduces up to v - backward passes before v)
//! ```
//!
//! for any shares of at most 1 together. With fixed shares that is an additive problem, and the best bound under a budget
//! of GPU time comes from linear passes. Shares move towards where the lane of the best choice is busiest (the
//! subgradient method of Frank and Wolfe, Naval Research Logistics 3, 1956). All plans met on the way are
//! evaluated exactly; the best one is then improved node by node.

use super::evaluate::CommunicationLane;
use super::sweep::{self, Bound, GivenUp, Goal};
use crate::search::{Bracket, SearchOptions, Solver, TimeModel, Weights, exact};
use crate::totals::chosen_options;
use crate::{PlanProblem, Result, data_parallel, evaluate};

/// How often shares are moved at most.
const ROUNDS: usize = 24;

/// How often all nodes are tried for an improvement at most.
const SWEEPS: usize = 8;

/// An improvement has to be this large, relatively, to be more than rounding.
const PROGRESS: f64 = 1e-12;

/// The best plan found, and how much faster any other plan within the budget can be at most, relatively.
///
/// # Errors
/// Those of the additive search.
pub(crate) fn fastest(
    problem: &PlanProblem,
    budget_us: f64,
    options: &SearchOptions,
) -> Result<(Vec<usize>, f64)> {
    let mut judge = Judge { problem, lane: CommunicationLane::new(problem), budget_us, best: None };
    let additive = exact(problem, budget_us, &options.clone().with_time_model(TimeModel::Additive))?;
    judge.consider(additive.0.choice)?;
    let (bound, bound_us) = bound(&mut judge, options)?;
    if let Ok(plan) = data_parallel(problem) {
        judge.consider(plan.choice)?;
    }
    if judge.gap(bound_us) > options.epsilon {
        judge.improve()?;
    }
    let gap = judge.gap(bound_us);
    // Memory is not a criterion of the sweep.
    if gap <= options.epsilon || problem.memory_limit_bytes.is_some() {
        return Ok((judge.into_choice(), gap));
    }
    let time_us = judge.best_us() * (1.0 - PROGRESS) / (1.0 + options.epsilon);
    let goal = Goal { time_us, budget_us, max_labels: options.max_labels };
    match sweep::search(problem, &judge.lane, &bound, &goal) {
        Ok(Some(better)) => Ok((better, 0.0)),
        Ok(None) => Ok((judge.into_choice(), options.epsilon)),
        Err(GivenUp) => Ok((judge.into_choice(), gap)),
    }
}

/// Moves shares as long as that helps, and passes all plans that are met to the judge. Returns the best bound and its value.
fn bound(judge: &mut Judge, options: &SearchOptions) -> Result<(Bound, f64)> {
    let mut shares = vec![0.0; judge.problem.nodes.len()];
    let mut best = (Bound { weights: weights(&judge.lane, &shares), price: 0.0 }, 0.0);
    for round in 0..ROUNDS {
        let weights = weights(&judge.lane, &shares);
        let solver = Solver::weighted(judge.problem, &weights, options)?;
        let bracket = Bracket::new(&solver, judge.budget_us)?;
        for found in &bracket.met {
            judge.consider(solver.arranged(found).choice)?;
        }
        if bracket.bound_us > best.1 {
            best = (Bound { weights, price: bracket.price() }, bracket.bound_us);
        }
        if judge.gap(best.1) <= options.epsilon.max(PROGRESS) {
            break;
        }
        let cheapest = solver.arranged(&bracket.within).choice;
        let step = 2.0 / (round as f64 + 2.0);
        for share in &mut shares {
            *share *= 1.0 - step;
        }
        if let Some(position) = judge.lane.busiest(&chosen_options(judge.problem, &cheapest)?) {
            shares[position] += step;
        }
    }
    Ok(best)
}

/// By node: how much of its all-reduce counts, and how much of its backward pass hides others.
fn weights(lane: &CommunicationLane, shares: &[f64]) -> Vec<Weights> {
    let mut weights = vec![Weights::ADDITIVE; shares.len()];
    // Shares of this node and of later ones.
    let mut all_reduce = 0.0;
    for (&node, share) in lane.order.iter().zip(shares).rev() {
        let backward = all_reduce;
        all_reduce = f64::min(all_reduce + share, 1.0);
        weights[node] = Weights { all_reduce, backward };
    }
    weights
}

/// Evaluates choices and remembers the best one within the budget.
struct Judge<'p> {
    problem: &'p PlanProblem,
    lane: CommunicationLane<'p>,
    budget_us: f64,
    best: Option<(f64, Vec<usize>)>,
}

impl Judge<'_> {
    /// Whether the choice is the best so far.
    fn consider(&mut self, choice: Vec<usize>) -> Result<bool> {
        let options = chosen_options(self.problem, &choice)?;
        let additive = evaluate(self.problem, &choice)?;
        let memory =
            options.iter().map(|option| option.memory_bytes.unwrap_or(0)).fold(0, u64::saturating_add);
        let fits = self.problem.memory_limit_bytes.is_none_or(|limit| memory <= limit);
        if additive.gpu_time_us > self.budget_us || !fits {
            return Ok(false);
        }
        let all_reduces: f64 = options.iter().map(|option| option.all_reduce_us).sum();
        let time_us = additive.iteration_us - all_reduces + self.lane.exposed_us(&choice, &options);
        let better = self.best.as_ref().is_none_or(|(best_us, _)| time_us < best_us * (1.0 - PROGRESS));
        if better {
            self.best = Some((time_us, choice));
        }
        Ok(better)
    }

    /// Changes nodes of the best choice one at a time as long as that helps.
    fn improve(&mut self) -> Result<()> {
        for _ in 0..SWEEPS {
            let mut improved = false;
            for node in 0..self.problem.nodes.len() {
                for option in 0..self.problem.nodes[node].options.len() {
                    let Some((_, best)) = &self.best else { return Ok(()) };
                    if best[node] != option {
                        let mut choice = best.clone();
                        choice[node] = option;
                        improved |= self.consider(choice)?;
                    }
                }
            }
            if !improved {
                break;
            }
        }
        Ok(())
    }

    fn gap(&self, bound_us: f64) -> f64 {
        (self.best_us() / bound_us - 1.0).max(0.0)
    }

    fn best_us(&self) -> f64 {
        self.best.as_ref().map_or(f64::INFINITY, |(best_us, _)| *best_us)
    }

    fn into_choice(self) -> Vec<usize> {
        self.best.map(|(_, choice)| choice).unwrap_or_default()
    }
}

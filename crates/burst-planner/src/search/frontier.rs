//! The result of a search.

use serde::{Deserialize, Serialize};

use super::archive::Entry;
use super::stage::SearchStage;
use crate::bound::Bound;
use crate::evaluator::{Evaluator, Plan};
use crate::proof::Work;
use crate::{Error, LowerBound, ProofBudget, ProofEnd, Result, Stop};

/// Maximum number of ranks in all lists of a frontier's plans, about 400 MB.
const MAX_RANKS: usize = 50_000_000;

/// Relative tolerance in comparisons of times with limits.
const LIMIT_TOLERANCE: f64 = 1e-9;

/// Pareto-optimal plans of the evaluated arrangements: no other one is at least as good in
/// iteration time and GPU time, and better in one of them. With thousands of nodes on many GPUs, it
/// has only some of these plans.
#[derive(Debug, Clone)]
pub struct Frontier {
    pub(super) plans: Vec<Plan>,
    pub(super) single_gpu_us: f64,
    pub(super) evaluations: u64,
    pub(super) search_end: SearchEnd,
    pub(super) bound: Bound,
}

/// Reason for the end of a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SearchEnd {
    /// The moves of the budget, a multiple of the [effort](super::SearchOptions::effort), have been
    /// made.
    Budget,
    /// All parts of the search ended because many moves in a row improved nothing.
    Converged,
}

impl Frontier {
    /// Returns the plans in ascending order of iteration time and descending order of GPU time.
    #[must_use]
    pub fn plans(&self) -> &[Plan] {
        &self.plans
    }

    /// Removes the plans for which `is_kept` returns false.
    pub fn retain(&mut self, is_kept: impl FnMut(&Plan) -> bool) {
        self.plans.retain(is_kept);
    }

    /// Returns the time on one GPU, microseconds, by which GPU time is divided to give
    /// amplification.
    #[must_use]
    pub fn single_gpu_us(&self) -> f64 {
        self.single_gpu_us
    }

    /// Returns the number of evaluated arrangements.
    #[must_use]
    pub fn evaluations(&self) -> u64 {
        self.evaluations
    }

    /// Returns the reason for the end of the search.
    #[must_use]
    pub fn search_end(&self) -> SearchEnd {
        self.search_end
    }

    /// Returns the fastest plan whose amplification is at most `limit`, with a relative tolerance
    /// of 1e-9.
    ///
    /// # Errors
    /// [`Error::BadLimit`] if `limit` is below 1 or not a number, [`Error::LimitUnreachable`] if no
    /// plan is within it.
    pub fn fastest_within(&self, limit: f64) -> Result<&Plan> {
        check_limit(limit)?;
        let budget_us = with_tolerance(limit * self.single_gpu_us);
        let first = self.plans.partition_point(|plan| plan.time.gpu_time_us > budget_us);
        self.plans.get(first).ok_or_else(|| {
            let smallest_us = self.plans.last().map_or(f64::INFINITY, |plan| plan.time.gpu_time_us);
            Error::LimitUnreachable { limit, smallest: smallest_us / self.single_gpu_us }
        })
    }

    /// Returns the plan with the minimum GPU time whose iteration time is at most `deadline_us`.
    ///
    /// # Errors
    /// [`Error::BadDeadline`] if `deadline_us` is negative or not a number,
    /// [`Error::DeadlineUnreachable`] if no plan is that fast.
    pub fn cheapest_within(&self, deadline_us: f64) -> Result<&Plan> {
        if deadline_us.is_nan() || deadline_us < 0.0 {
            return Err(Error::BadDeadline { deadline_us });
        }
        let deadline = with_tolerance(deadline_us);
        let late = self.plans.partition_point(|plan| plan.time.iteration_us <= deadline);
        late.checked_sub(1).and_then(|last| self.plans.get(last)).ok_or_else(|| {
            let smallest_us = self.plans.first().map_or(f64::INFINITY, |plan| plan.time.iteration_us);
            Error::DeadlineUnreachable { deadline_us, smallest_us }
        })
    }

    /// Returns the plan at the knee: the one farthest below the line from the fastest to the
    /// cheapest plan, in the logarithms of both times. Beyond it, faster plans cost much and
    /// cheaper ones save little. `None` if there are no plans.
    #[must_use]
    pub fn knee(&self) -> Option<&Plan> {
        let (first, last) = (self.plans.first()?, self.plans.last()?);
        let logarithms = |plan: &Plan| (plan.time.iteration_us.ln(), plan.time.gpu_time_us.ln());
        let ((x0, y0), (x1, y1)) = (logarithms(first), logarithms(last));
        let below = |plan: &&Plan| {
            let (x, y) = logarithms(plan);
            (x - x0) * (y1 - y0) - (y - y0) * (x1 - x0)
        };
        self.plans.iter().max_by(|a, b| below(a).total_cmp(&below(b)))
    }

    /// Returns the [proved](Self::prove) lower bound with the default budget, microseconds.
    #[must_use]
    pub fn lower_bound_us(&self, limit: f64) -> f64 {
        self.prove(limit, ProofBudget::Default, &Stop::default()).us
    }

    /// Proves a lower bound of the iteration time of all arrangements whose amplification is at
    /// most `limit`. It is at most the time of the fastest plan within the limit. It can
    /// be loose: see the [crate's page](crate#limits). `stop` ends the proof early, and shows its
    /// progress. Any end gives a valid bound.
    #[must_use]
    pub fn prove(&self, limit: f64, budget: ProofBudget, stop: &Stop) -> LowerBound {
        let found_us = self.fastest_within(limit).map_or(f64::INFINITY, |plan| plan.time.iteration_us);
        let mut work = Work::new(budget, self.evaluations, stop);
        let bound = self.bound.prove(with_tolerance(limit * self.single_gpu_us), found_us, &mut work);
        if budget == ProofBudget::Off { LowerBound { end: ProofEnd::Off, ..bound } } else { bound }
    }
}

/// Returns the frontier that a stage has found.
pub(super) fn found(stage: SearchStage<'_>, bound: Bound) -> Result<Frontier> {
    let SearchStage { mut evaluator, archive, single_gpu_us, .. } = stage;
    if let Some(closest) = archive.closest() {
        let closest = evaluator.arrangement(&closest.arrangement);
        evaluator.check_memory(&closest)?;
    }
    let entries = thinned_entries(archive.into_entries(), &evaluator);
    let plans = entries
        .map(|entry| Plan { time: entry.time, arrangement: evaluator.arrangement(&entry.arrangement) })
        .collect();
    let (evaluations, search_end) = (evaluator.evaluations, SearchEnd::Converged);
    Ok(Frontier { plans, single_gpu_us, evaluations, search_end, bound })
}

/// Returns the entries. If their lists have more than [`MAX_RANKS`] ranks in total, returns some of
/// them, evenly spaced, with about that number.
fn thinned_entries(entries: Vec<Entry>, evaluator: &Evaluator<'_>) -> impl Iterator<Item = Entry> {
    let ranks = |entry: &Entry| {
        entry.arrangement.groups.iter().map(|&group| evaluator.ranks(group).len()).sum::<usize>()
    };
    let (count, all) = (entries.len(), entries.iter().map(ranks).sum::<usize>());
    let kept = if all > MAX_RANKS { (count * MAX_RANKS / all).clamp(2, count) } else { count };
    let is_kept = move |index: usize| {
        index == 0 || index + 1 == count || index * kept / count != (index - 1) * kept / count
    };
    entries.into_iter().enumerate().filter(move |&(index, _)| is_kept(index)).map(|(_, entry)| entry)
}

/// Checks an amplification limit. Fails with [`Error::BadLimit`] if it is less than 1 or not a
/// number.
pub(crate) fn check_limit(limit: f64) -> Result<()> {
    // The comparison is false for NaN.
    if limit >= 1.0 { Ok(()) } else { Err(Error::BadLimit { limit }) }
}

fn with_tolerance(limit: f64) -> f64 {
    limit * (1.0 + LIMIT_TOLERANCE)
}

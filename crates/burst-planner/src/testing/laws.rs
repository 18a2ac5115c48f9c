//! Properties that every search should have. A *law* is such a property, checked for given problems
//! and limits.

use std::fmt;

use super::RandomProblem;
use crate::{Arrangement, CostModel, Error, Evaluator, PlanProblem, PlanTime, Result, TableCosts};

/// A search: returns an arrangement for a problem, its costs and an amplification limit, or `None`
/// if it finds none within the limit.
pub type Search<'s> = dyn Fn(&PlanProblem, &dyn CostModel, f64) -> Option<Arrangement> + 's;

/// Times that differ by less, relatively, are equal.
const RELATIVE_TOLERANCE: f64 = 1e-9;

/// A violation of a law by a search.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    /// Name of the law.
    pub law: &'static str,
    /// Description of the violation, such as the limits and times that contradict the law.
    pub description: String,
    /// Seed of the random problem; `None` for a given problem.
    pub seed: Option<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(seed) = self.seed {
            write!(formatter, "seed {seed}: ")?;
        }
        write!(formatter, "{}: {}", self.law, self.description)
    }
}

fn broken(law: &'static str, description: String) -> std::result::Result<(), Violation> {
    Err(Violation { law, description, seed: None })
}

/// Runs a search, validates the arrangement and evaluates it.
fn found(
    search: &Search<'_>,
    problem: &PlanProblem,
    costs: &dyn CostModel,
    limit: f64,
) -> std::result::Result<Option<PlanTime>, Violation> {
    let Some(arrangement) = search(problem, costs, limit) else { return Ok(None) };
    let timed = Evaluator::new(problem, costs).and_then(|mut evaluator| {
        for (node, ranks) in problem.nodes.iter().zip(&arrangement.ranks) {
            if !node.gpu_counts.contains(&ranks.len()) {
                return Err(Error::NoTimes { node: node.name.clone(), gpus: ranks.len() });
            }
        }
        Ok((evaluator.evaluate(&arrangement)?, evaluator.single_gpu_us()?))
    });
    let law = "the arrangement fits the problem and keeps the limit";
    match timed {
        Ok((time, single_gpu_us))
            if time.gpu_time_us <= limit * single_gpu_us * (1.0 + RELATIVE_TOLERANCE) =>
        {
            Ok(Some(time))
        }
        Ok((time, single_gpu_us)) => {
            let amplification = time.gpu_time_us / single_gpu_us;
            Err(Violation {
                law,
                description: format!("amplification {amplification} at limit {limit}"),
                seed: None,
            })
        }
        Err(error) => Err(Violation { law, description: format!("at limit {limit}: {error}"), seed: None }),
    }
}

fn is_slower(found: Option<PlanTime>, than_us: f64) -> bool {
    found.is_none_or(|time| time.iteration_us > than_us * (1.0 + RELATIVE_TOLERANCE))
}

fn shown(found: Option<PlanTime>) -> String {
    found.map_or("nothing".into(), |time| format!("{} us", time.iteration_us))
}

/// Checks that the search returns an arrangement of the problem, on GPU counts of its nodes, whose
/// amplification is at most `limit`, or none.
///
/// # Errors
/// A `Violation` if the arrangement exceeds the limit, does not fit the problem or cannot be
/// evaluated.
pub fn keeps_the_limit(
    search: &Search<'_>,
    problem: &PlanProblem,
    costs: &dyn CostModel,
    limit: f64,
) -> std::result::Result<(), Violation> {
    found(search, problem, costs, limit).map(|_| ())
}

/// Checks that a looser amplification limit never gives a slower arrangement. `limits` are
/// ascending.
///
/// # Errors
/// A `Violation` if a result is slower than one before, or does not fit the problem or its limit.
pub fn looser_limits_are_never_slower(
    search: &Search<'_>,
    problem: &PlanProblem,
    costs: &dyn CostModel,
    limits: &[f64],
) -> std::result::Result<(), Violation> {
    let mut before: Option<(f64, f64)> = None;
    for &limit in limits {
        let now = found(search, problem, costs, limit)?;
        if let Some((tighter, us)) = before.filter(|&(_, us)| is_slower(now, us)) {
            let description = format!("{us} us at limit {tighter}, {} at {limit}", shown(now));
            return broken("a looser limit is never slower", description);
        }
        before = now.map(|time| (limit, time.iteration_us)).or(before);
    }
    Ok(())
}

/// Checks that more GPUs never give a slower arrangement within the amplification limit `limit`.
/// Each node keeps its GPU counts, up to the number of GPUs.
///
/// # Errors
/// A `Violation` if a result is slower than one before, or does not fit the problem or its limit.
pub fn more_gpus_are_never_slower(
    search: &Search<'_>,
    problem: &PlanProblem,
    costs: &dyn CostModel,
    limit: f64,
) -> std::result::Result<(), Violation> {
    let mut before: Option<(usize, f64)> = None;
    for gpus in 1..=problem.gpus {
        let mut with_fewer = PlanProblem { gpus, ..problem.clone() };
        for node in &mut with_fewer.nodes {
            node.gpu_counts.retain(|&count| count <= gpus);
        }
        if with_fewer.nodes.iter().any(|node| node.gpu_counts.is_empty()) {
            continue;
        }
        let now = found(search, &with_fewer, costs, limit)?;
        if let Some((fewer, us)) = before.filter(|&(_, us)| is_slower(now, us)) {
            let description = format!("{us} us on {fewer} GPUs, {} on {gpus}, at limit {limit}", shown(now));
            return broken("more GPUs are never slower", description);
        }
        before = now.map(|time| (gpus, time.iteration_us)).or(before);
    }
    Ok(())
}

/// Checks that the search is never slower than data parallelism, at the amplification of data
/// parallelism on any number of GPUs.
///
/// # Errors
/// A `Violation` if a result is slower, or does not fit the problem or its limit, or if data
/// parallelism cannot be evaluated.
pub fn never_slower_than_data_parallelism(
    search: &Search<'_>,
    problem: &PlanProblem,
    costs: &dyn CostModel,
) -> std::result::Result<(), Violation> {
    let law = "never slower than data parallelism";
    for gpus in 1..=problem.gpus {
        if !problem.nodes.iter().all(|node| node.gpu_counts.contains(&gpus)) {
            continue;
        }
        let timed = Evaluator::new(problem, costs).and_then(|mut evaluator| {
            let time = evaluator.evaluate(&Arrangement::data_parallel(problem, gpus)?)?;
            Ok((time, evaluator.single_gpu_us()?))
        });
        let (time, single_gpu_us) =
            timed.map_err(|error| Violation { law, description: error.to_string(), seed: None })?;
        let limit = (time.gpu_time_us / single_gpu_us).max(1.0);
        let now = found(search, problem, costs, limit)?;
        if is_slower(now, time.iteration_us) {
            let us = time.iteration_us;
            return broken(
                law,
                format!("{gpus} GPUs take {us} us, {} is found at limit {limit}", shown(now)),
            );
        }
    }
    Ok(())
}

/// Checks that an arrangement is not slower if transfers and all-reduces take `factor` times as
/// long, with a factor below 1. A law of the time model, not of a search. The inner
/// result is a `Violation` if the law does not hold.
///
/// # Errors
/// Those of the [`Evaluator`], if the problem or the arrangement is invalid.
pub fn faster_links_never_slow_down(
    problem: &PlanProblem,
    costs: &TableCosts,
    arrangement: &Arrangement,
    factor: f64,
) -> Result<std::result::Result<(), Violation>> {
    let slow = Evaluator::new(problem, costs)?.evaluate(arrangement)?;
    let scaled = costs.clone().with_communication_scaled(factor);
    let fast = Evaluator::new(problem, &scaled)?.evaluate(arrangement)?;
    if !is_slower(Some(fast), slow.iteration_us) {
        return Ok(Ok(()));
    }
    let description = format!(
        "{} us, and {} us with links that take {factor} times as long",
        slow.iteration_us, fast.iteration_us
    );
    Ok(broken("a faster link never slows a fixed plan", description))
}

/// Checks the laws of looser limits, more GPUs and data parallelism on random problems. Returns all
/// violations; empty if there are none.
#[must_use]
pub fn check_search(
    search: &Search<'_>,
    problems: impl IntoIterator<Item = RandomProblem>,
) -> Vec<Violation> {
    const LIMITS: [f64; 8] = [1.0, 1.1, 1.25, 1.5, 1.75, 2.0, 2.5, 4.0];
    let mut violations = Vec::new();
    for RandomProblem { seed, problem, costs } in problems {
        let limit = LIMITS[seed as usize % LIMITS.len()];
        let results = [
            looser_limits_are_never_slower(search, &problem, &costs, &LIMITS),
            more_gpus_are_never_slower(search, &problem, &costs, limit),
            never_slower_than_data_parallelism(search, &problem, &costs),
        ];
        let broken = results.into_iter().filter_map(std::result::Result::err);
        violations.extend(broken.map(|violation| Violation { seed: Some(seed), ..violation }));
    }
    violations
}

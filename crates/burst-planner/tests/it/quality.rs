//! Tests of the search's quality: against enumeration and against random restarts.

use std::time::{Duration, Instant};

use burst_planner::testing::{
    Budget, Graph, RandomProblem, best_by_enumeration, check_search, random_problem, random_problem_on,
    random_restarts,
};
use burst_planner::{Arrangement, CostModel, PlanProblem, SearchOptions, frontier};

use crate::{cases, is_ascending};

/// Times that differ by less, relatively, are equal.
const SAME: f64 = 1e-9;

/// Returns the limit for a random problem, by its seed.
fn limit(seed: u64) -> f64 {
    [1.0, 1.05, 1.15, 1.3, 1.5, 1.75, 2.0, 3.0][(seed / 3) as usize % 8]
}

fn our_search(problem: &PlanProblem, costs: &dyn CostModel, limit: f64) -> Option<Arrangement> {
    let frontier = frontier(problem, costs, &SearchOptions::default()).ok()?;
    frontier.fastest_within(limit).ok().map(|point| point.arrangement.clone())
}

#[test]
fn plans_mostly_match_enumeration() {
    let all = cases(20);
    let (mut worse, mut better, mut evaluations) = (Vec::new(), Vec::new(), 0);
    let mut gaps = Vec::new();
    for seed in 0..all {
        let RandomProblem { problem, costs, .. } = random_problem(seed);
        costs.validate(&problem).expect("a valid problem");
        let best = best_by_enumeration(&problem, &costs).expect("a valid problem");
        evaluations += best.evaluations;
        let found = frontier(&problem, &costs, &SearchOptions::default()).expect("a valid problem");
        let limit = limit(seed);
        let best_us = best.fastest_within(limit).map(|point| point.time.iteration_us);
        let point = found.fastest_within(limit).ok();
        let (Some(best_us), Some(point)) = (best_us, point) else {
            assert!(
                best_us.is_none() && point.is_none(),
                "seed {seed}: one of them finds nothing within {limit}"
            );
            continue;
        };
        let found_us = point.time.iteration_us;
        let bound_us = found.lower_bound_us(limit);
        let min_us = best_us.min(found_us);
        assert!(bound_us <= min_us * (1.0 + SAME), "seed {seed}: {min_us} us, and {bound_us} is the bound");
        gaps.push(min_us / bound_us - 1.0);
        if found_us < best_us * (1.0 - SAME) {
            println!("seed {seed}: {found_us} us, and {best_us} is the best of all on ascending lists");
            if is_ascending(&point.arrangement) {
                better.push(seed);
            }
        }
        if found_us > best_us * (1.0 + SAME) {
            let (nodes, gpus) = (problem.nodes.len(), problem.gpus);
            let percent = (found_us / best_us - 1.0) * 100.0;
            worse.push(seed);
            println!(
                "seed {seed}: {nodes} nodes, {gpus} GPUs, limit {limit}: {percent:.2}% above the optimum"
            );
        }
    }
    let equal = all - worse.len() as u64;
    gaps.sort_by(f64::total_cmp);
    if let (Some(median), Some(largest)) = (gaps.get(gaps.len() / 2), gaps.last()) {
        println!(
            "from the bound to the best: median {:.1}%, at most {:.1}%",
            median * 100.0,
            largest * 100.0
        );
    }
    println!(
        "{equal} of {all} are the best, out of {evaluations} arrangements in all; the others: {worse:?}"
    );
    assert!(better.is_empty(), "the best of all was not among them: seeds {better:?}");
    assert!(equal as f64 >= 0.95 * all as f64, "only {equal} of {all}, not with the seeds {worse:?}");
}

/// The full test is 60 s for each of 100 problems: set `BURST_PLANNER_RESTART_SECONDS` and
/// `BURST_PLANNER_RESTART_PROBLEMS`. `BURST_PLANNER_RESTART_SEEDS` selects problems by
/// comma-separated seeds, and `BURST_PLANNER_EFFORT` sets the effort of the search.
#[test]
fn search_matches_random_restarts() {
    let read = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    let budget = read("BURST_PLANNER_RESTART_SECONDS")
        .map_or(Budget::Evaluations(2_000), |seconds| Budget::Time(Duration::from_secs(seconds)));
    let mut options = SearchOptions::default();
    options.effort = read("BURST_PLANNER_EFFORT").map_or(options.effort, |effort| effort as f64);
    let seeds: Vec<u64> = match std::env::var("BURST_PLANNER_RESTART_SEEDS") {
        Ok(seeds) => seeds.split(',').map(|seed| seed.parse().expect("a number")).collect(),
        Err(_) => (0..read("BURST_PLANNER_RESTART_PROBLEMS").unwrap_or(3)).collect(),
    };
    let mut behind = Vec::new();
    for seed in seeds {
        let graph = [Graph::Chain, Graph::Branches, Graph::Dag][seed as usize % 3];
        let gpus = [2, 3, 4, 6, 8][seed as usize % 5];
        let RandomProblem { problem, costs, .. } =
            random_problem_on(seed, graph, 12 + seed as usize % 9, gpus);
        let limit = limit(seed).max(1.05);
        let begun = Instant::now();
        let found = frontier(&problem, &costs, &options).expect("a valid problem");
        let (took, evaluations) = (begun.elapsed(), found.evaluations());
        let restarts = random_restarts(&problem, &costs, limit, budget, seed).expect("a valid problem");
        let (Ok(found), Some(other)) = (found.fastest_within(limit), restarts) else { continue };
        let percent = (found.time.iteration_us / other.time.iteration_us - 1.0) * 100.0;
        println!(
            "seed {seed}: {graph:?} on {gpus} GPUs at limit {limit}: {percent:+.2}% against random \
             restarts, {took:.1?} for {evaluations} evaluations"
        );
        if percent > 2.0 {
            behind.push(seed);
        }
    }
    assert!(behind.is_empty(), "more than 2% slower than random restarts with the seeds {behind:?}");
}

#[test]
fn search_satisfies_the_laws() {
    let violations = check_search(&our_search, (0..cases(8)).map(random_problem));
    violations.iter().take(20).for_each(|violation| println!("{violation}"));
    assert!(violations.is_empty(), "{} laws are broken", violations.len());
}

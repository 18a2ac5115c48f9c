//! Proofs of lower bounds within budgets of work.

use std::time::Duration;

use burst_planner::testing::{Graph, RandomProblem, random_problem, random_problem_on};
use burst_planner::{Frontier, ProofBudget, ProofEnd, SearchOptions, Stop, frontier};

fn found(random: &RandomProblem) -> Frontier {
    frontier(&random.problem, &random.costs, &SearchOptions::default()).expect("a valid problem")
}

#[test]
fn bounds_of_any_budget_hold_and_are_reproducible() {
    let mut ends = Vec::new();
    for seed in 0..12 {
        let found = found(&random_problem(seed));
        for limit in [1.1, 2.0] {
            let Ok(plan) = found.fastest_within(limit) else { continue };
            for operations in [1, 3_000, 200_000, 3_000_000] {
                let prove = || found.prove(limit, ProofBudget::Operations(operations), &Stop::default());
                let bound = prove();
                assert_eq!(bound, prove(), "seed {seed}");
                assert!(bound.us <= plan.time.iteration_us, "seed {seed}: {bound:?}");
                let is_optimal = bound.us >= plan.time.iteration_us;
                assert_eq!(bound.end == ProofEnd::Optimal, is_optimal, "seed {seed}: {bound:?}");
                ends.push(bound.end);
            }
        }
    }
    for end in [ProofEnd::Optimal, ProofEnd::Complete, ProofEnd::Budget] {
        assert!(ends.contains(&end), "no proof ended with {end:?}");
    }
}

#[test]
fn without_a_budget_nothing_is_proved() {
    let found = found(&random_problem(1));
    let bound = found.prove(2.0, ProofBudget::Off, &Stop::default());
    assert_eq!((bound.us, bound.operations, bound.end), (0.0, 0, ProofEnd::Off));
}

#[test]
fn a_stopped_proof_returns_what_it_has_proved() {
    let found = found(&random_problem_on(3, Graph::Branches, 24, 6));
    let stop = Stop::default();
    let bound = std::thread::scope(|scope| {
        scope.spawn(|| {
            // After the first pass.
            while stop.progress().lower_bound_us <= 0.0 {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.stop();
        });
        found.prove(1.5, ProofBudget::Time(Duration::from_secs(600)), &stop)
    });
    assert_eq!(bound.end, ProofEnd::Stopped);
    assert!(bound.us > 0.0 && bound.us <= found.fastest_within(1.5).unwrap().time.iteration_us);
    assert_eq!(stop.progress().lower_bound_us.total_cmp(&bound.us), std::cmp::Ordering::Equal);
}

#[test]
fn a_proof_ends_when_its_time_is_over() {
    let found = found(&random_problem_on(3, Graph::Branches, 24, 6));
    let bound = found.prove(1.5, ProofBudget::Time(Duration::from_millis(1)), &Stop::default());
    assert_eq!(bound.end, ProofEnd::Time);
}

#[test]
fn budgets_are_parsed() {
    assert_eq!("off".parse(), Ok(ProofBudget::Off));
    assert_eq!("default".parse(), Ok(ProofBudget::Default));
    assert_eq!("30s".parse(), Ok(ProofBudget::Time(Duration::from_secs(30))));
    assert_eq!("1.5min".parse(), Ok(ProofBudget::Time(Duration::from_secs(90))));
    for text in ["", "30", "s", "-1s", "0s", "1h", "1e999s", "nans"] {
        let error = text.parse::<ProofBudget>().unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("30s"), "{error}");
    }
}

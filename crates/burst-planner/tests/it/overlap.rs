//! All-reduces that overlap with the backward pass, against a simulation step by step and the search of all choices.

use burst_planner::{
    NodeId, NodeOption, PlanProblem, SearchOptions, TimeModel, data_parallel, evaluate, evaluate_overlap,
    fastest,
};
use proptest::prelude::*;

use crate::random::{all_outcomes, close, graphs, problems};

const COUNTS: &[usize] = &[1, 2, 3, 4, 8];

fn overlap() -> SearchOptions {
    SearchOptions::default().with_time_model(TimeModel::Overlap)
}

/// When an iteration ends, by two clocks: that of the backward pass and that of the lane.
fn two_clocks(problem: &PlanProblem, choice: &[usize]) -> f64 {
    let option = |node: usize| &problem.nodes[node].options[choice[node]];
    let backward = |node: usize| option(node).backward_us.unwrap_or(option(node).time_us * 2.0 / 3.0);
    // The graphs of these tests have edges from lower to higher indices only, so that is the program order.
    let mut clock: f64 = (0..problem.nodes.len()).map(|node| option(node).time_us - backward(node)).sum();
    let mut lane_is_free = 0.0_f64;
    for node in (0..problem.nodes.len()).rev() {
        let outgoing = problem.edges.iter().filter(|edge| edge.from == NodeId(node));
        for edge in outgoing {
            let takes = edge.transfer_us[choice[edge.from.0]][choice[edge.to.0]];
            if takes > 0.0 {
                clock = clock.max(lane_is_free) + takes;
            }
        }
        clock += backward(node);
        if option(node).all_reduce_us > 0.0 {
            lane_is_free = lane_is_free.max(clock) + option(node).all_reduce_us;
        }
    }
    clock.max(lane_is_free)
}

/// The random problem with backward parts from nothing to everything.
fn with_backward(mut problem: PlanProblem, parts: &[f64]) -> PlanProblem {
    let mut parts = parts.iter().cycle();
    for option in problem.nodes.iter_mut().flat_map(|node| &mut node.options) {
        option.backward_us = parts.next().map(|part| part * option.time_us);
    }
    problem
}

fn overlapping() -> impl Strategy<Value = PlanProblem> {
    (problems(graphs(), COUNTS), prop::collection::vec(0.0..=1.0, 7))
        .prop_map(|(problem, parts)| with_backward(problem, &parts))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_choice_takes_as_long_as_two_clocks_say(problem in overlapping()) {
        for outcome in all_outcomes(&problem) {
            let totals = evaluate_overlap(&problem, &outcome.choice)?;
            prop_assert!(close(totals.iteration_us, two_clocks(&problem, &outcome.choice)));
            let additive = evaluate(&problem, &outcome.choice)?;
            prop_assert!(totals.iteration_us <= additive.iteration_us * (1.0 + 1e-12));
            prop_assert!(close(totals.gpu_time_us, additive.gpu_time_us));
        }
    }

    #[test]
    fn without_backward_time_nothing_overlaps(problem in overlapping()) {
        let problem = with_backward(problem, &[0.0]);
        for outcome in all_outcomes(&problem) {
            let (overlap, additive) = (evaluate_overlap(&problem, &outcome.choice)?, evaluate(&problem, &outcome.choice)?);
            prop_assert!(close(overlap.iteration_us, additive.iteration_us));
        }
    }

    #[test]
    fn the_plan_is_the_fastest_of_all_choices(problem in overlapping(), position in 0.0..1.1, epsilon in prop_oneof![Just(0.0), 0.0..0.1]) {
        let outcomes = all_outcomes(&problem);
        let least = outcomes.iter().map(|outcome| outcome.gpu).fold(f64::INFINITY, f64::min);
        let most = outcomes.iter().map(|outcome| outcome.gpu).fold(0.0, f64::max);
        let limit = f64::max((least + position * (most - least)) / problem.single_gpu_time_us(), 1.0);
        let budget = limit * problem.single_gpu_time_us() * (1.0 + 1e-9);
        let times = outcomes.iter().filter(|outcome| outcome.gpu <= budget);
        let best = times.map(|outcome| two_clocks(&problem, &outcome.choice)).fold(f64::INFINITY, f64::min);
        let options = SearchOptions::with_epsilon(epsilon).with_time_model(TimeModel::Overlap);
        let found = fastest(&problem, limit, &options);
        if best.is_infinite() {
            prop_assert!(found.is_err());
        } else {
            let found = found?;
            prop_assert!(found.totals.gpu_time_us <= budget);
            prop_assert!(close(found.totals.iteration_us, two_clocks(&problem, &found.choice)));
            let certified = found.optimality_gap.unwrap_or(f64::INFINITY);
            prop_assert!(certified <= epsilon);
            prop_assert!(found.totals.iteration_us <= best * (1.0 + certified) * (1.0 + 1e-9) + 1e-9, "{} {best}", found.totals.iteration_us);
        }
    }

    /// Memory is no criterion of the exact search, so the plan is only certified.
    #[test]
    fn with_a_memory_limit_the_certificate_holds(mut problem in overlapping(), position in 0.0..1.2) {
        let outcomes = all_outcomes(&problem);
        let low = outcomes.iter().map(|outcome| outcome.bytes).min().unwrap_or(0);
        let high = outcomes.iter().map(|outcome| outcome.bytes).max().unwrap_or(0);
        let limit = low + (position * (high - low) as f64) as u64;
        problem.memory_limit_bytes = Some(limit);
        let fitting = outcomes.iter().filter(|outcome| outcome.bytes <= limit);
        let best = fitting.map(|outcome| two_clocks(&problem, &outcome.choice)).fold(f64::INFINITY, f64::min);
        let found = fastest(&problem, f64::INFINITY, &overlap())?;
        let bytes = problem.nodes.iter().zip(&found.choice).map(|(node, &option)| node.options[option].memory_bytes);
        prop_assert!(bytes.sum::<Option<u64>>().is_some_and(|bytes| bytes <= limit));
        let certified = found.optimality_gap.unwrap_or(f64::INFINITY);
        prop_assert!(found.totals.iteration_us <= best * (1.0 + certified) * (1.0 + 1e-9) + 1e-9);
    }

    #[test]
    fn a_burst_plan_is_never_slower_than_data_parallelism(problem in overlapping()) {
        if let Ok(plan) = data_parallel(&problem) {
            let parallel = evaluate_overlap(&problem, &plan.choice)?;
            if parallel.amplification >= 1.0 {
                let burst = fastest(&problem, parallel.amplification, &overlap())?;
                prop_assert!(burst.totals.iteration_us <= parallel.iteration_us * (1.0 + 1e-9));
            }
        }
    }
}

#[test]
fn there_is_no_frontier_with_overlap() {
    let mut problem = PlanProblem::new(1);
    problem.add_node("only", [NodeOption::new(1, 1.0)]);
    let error = burst_planner::frontier(&problem, &overlap()).unwrap_err().to_string();
    assert!(error.contains("overlapping all-reduces"), "{error}");
}

//! Tests of the evaluator against the slow time model.

use std::num::NonZeroUsize;

use burst_planner::testing::{
    Graph, HashedCosts, RandomProblem, add_random_splits, faster_links_never_slow_down, random_arrangement,
    random_problem_on, random_split_arrangement, slow_time,
};
use burst_planner::{
    Arrangement, CostModel, Evaluator, Node, NodeId, PlanProblem, StepTimes, TableCosts, TransferTimes,
};

use crate::cases;

/// Maximum number of iterations that the evaluator simulates to find the steady state.
const MAX_ITERATIONS: usize = 12;

fn random(seed: u64) -> (RandomProblem, Arrangement) {
    let graph = [Graph::Chain, Graph::Branches, Graph::Dag][seed as usize % 3];
    let random = random_problem_on(seed, graph, 1 + seed as usize % 9, 1 + seed as usize % 7);
    let arrangement = random_arrangement(&random.problem, seed);
    (random, arrangement)
}

/// Returns a description of the differences, or `None` if there are none.
fn difference(problem: &PlanProblem, costs: &dyn CostModel, arrangement: &Arrangement) -> Option<String> {
    let slow = slow_time(problem, costs, arrangement).expect("a valid case");
    let mut evaluator = Evaluator::new(problem, costs).expect("a valid problem");
    let fast = evaluator.evaluate(arrangement).expect("a valid arrangement");
    let activity = evaluator.activity(arrangement).expect("a valid arrangement");
    let differ = |a: f64, b: f64| (a - b).abs() > 1e-9 * a.abs().max(b.abs()).max(slow.iteration_us);
    if differ(fast.iteration_us, slow.iteration_us) {
        return Some(format!("iteration {} us, slowly {}", fast.iteration_us, slow.iteration_us));
    }
    if slow.steady_after > MAX_ITERATIONS {
        // Ranks that drift apart for longer have other idle times in the evaluator's last
        // iteration.
        return None;
    }
    if differ(fast.gpu_time_us, slow.gpu_time_us) {
        return Some(format!("GPU time {} us, slowly {}", fast.gpu_time_us, slow.gpu_time_us));
    }
    let mut ranks = activity.iter().zip(&slow.activity).enumerate();
    ranks.find_map(|(rank, (fast, slow))| {
        let pairs = [
            (fast.computing_us, slow.computing_us),
            (fast.communicating_us, slow.communicating_us),
            (fast.idle_us, slow.idle_us),
        ];
        pairs.iter().any(|&(a, b)| differ(a, b)).then(|| format!("rank {rank}: {fast:?}, slowly {slow:?}"))
    })
}

#[test]
fn evaluator_matches_slow_time_model() {
    let (mut failures, all) = (Vec::new(), cases(300));
    for seed in 0..all {
        let (random, arrangement) = random(seed);
        let mut problem = random.problem;
        failures.extend(difference(&problem, &random.costs, &arrangement).map(|text| (seed, "tables", text)));
        problem.gradients.bucket_bytes = [0, 1 << 21, u64::MAX][seed as usize % 3];
        let hashed = HashedCosts { seed, integral: seed % 2 == 0 };
        failures.extend(difference(&problem, &hashed, &arrangement).map(|text| (seed, "hashed", text)));
    }
    for (seed, costs, text) in failures.iter().take(20) {
        println!("seed {seed}, {costs} costs: {text}");
    }
    assert!(failures.is_empty(), "{} of {} differ", failures.len(), 2 * all);
}

/// Costs depend on all arguments, so that this compares the ranks, their order and the number of
/// bytes of every collective.
#[test]
fn evaluator_matches_slow_time_model_with_splits() {
    let (mut failures, mut split, all) = (Vec::new(), 0, cases(1000));
    for seed in 0..all {
        let graph = [Graph::Chain, Graph::Branches, Graph::Dag][seed as usize % 3];
        let mut problem =
            random_problem_on(seed, graph, 1 + seed as usize % 9, 2 + seed as usize % 7).problem;
        add_random_splits(&mut problem, seed);
        problem.gradients.bucket_bytes = [0, 1 << 21, u64::MAX][seed as usize % 3];
        let arrangement = random_split_arrangement(&problem, seed);
        split += u64::from(arrangement.is_split());
        let hashed = HashedCosts { seed, integral: seed % 2 == 0 };
        failures.extend(difference(&problem, &hashed, &arrangement).map(|text| (seed, text)));
    }
    for (seed, text) in failures.iter().take(20) {
        println!("seed {seed}: {text}");
    }
    assert!(failures.is_empty(), "{} of {all} differ", failures.len());
    assert!(split > all / 2, "only {split} of {all} have splits");
}

#[test]
fn faster_links_never_slow_down_an_arrangement() {
    for seed in 0..cases(300) {
        let (RandomProblem { problem, costs, .. }, arrangement) = random(seed);
        for factor in [0.0, 0.5, 0.95] {
            let law =
                faster_links_never_slow_down(&problem, &costs, &arrangement, factor).expect("a valid case");
            assert_eq!(law, Ok(()), "seed {seed}");
        }
    }
}

/// Two nodes side by side on two ranks: forward 10 us, backward 20 us, update 5 us each, transfers
/// 1 us.
#[test]
fn micro_batches_repeat_all_steps_but_updates() {
    let mut problem = PlanProblem::new(2);
    let mut costs = TableCosts::new();
    for (index, name) in ["first", "second"].into_iter().enumerate() {
        problem.add_node(Node::new(name, [1]).with_gradient_bytes(4));
        costs.set_steps(NodeId(index), 1, StepTimes { forward_us: 10.0, backward_us: 20.0, update_us: 5.0 });
    }
    costs.set_transfer(NodeId(0), 1, 1, TransferTimes { nested_us: 1.0, disjoint_us: 1.0 });
    problem.add_edge(NodeId(0), NodeId(1));
    for micro_batches in 1..5 {
        problem.micro_batches = NonZeroUsize::new(micro_batches).unwrap();
        let mut evaluator = Evaluator::new(&problem, &costs).unwrap();
        let mut took = |ranks: [usize; 2]| {
            let ranks = ranks.map(|rank| vec![rank]).to_vec();
            let arrangement = Arrangement::new(ranks, vec![0, 1]);
            let path_us: f64 =
                evaluator.critical_path(&arrangement).unwrap().iter().map(|step| step.time_us).sum();
            let iteration_us = evaluator.evaluate(&arrangement).unwrap().iteration_us;
            assert!((path_us - iteration_us).abs() < 1e-9, "{path_us} us of {iteration_us} us");
            iteration_us
        };
        let times = micro_batches as f64;
        let is =
            |took_us: f64, expected_us: f64| assert!((took_us - expected_us).abs() < 1e-9, "{took_us} us");
        is(took([0, 0]), 60.0 * times + 10.0);
        // Both ranks update at the same time.
        is(took([0, 1]), 62.0 * times + 5.0);
    }
}

//! Test that the timeline in the documentation is the evaluator's.

use burst_planner::{
    AllReduceTime, Arrangement, Evaluator, Node, PlanProblem, StepTimes, TableCosts, TransferTimes,
};

const PAGE: &str = include_str!("../../docs/time-of-a-program.md");
const US: f64 = 2.0;

/// Returns the lanes of the timeline, without their names.
fn lanes() -> Vec<&'static str> {
    let picture = PAGE.split("<!-- timeline -->").nth(1).and_then(|rest| rest.split("<!-- end").next());
    let lines = picture.expect("a picture").lines().filter(|line| line.starts_with("rank"));
    lines.map(|line| line.rsplit(' ').next().expect("a lane")).collect()
}

fn count(lane: &str, wanted: impl Fn(char) -> bool) -> f64 {
    US * lane.chars().filter(|&step| wanted(step)).count() as f64
}

#[test]
fn timeline_in_the_documentation_matches_the_evaluator() {
    let mut problem = PlanProblem::new(2);
    let conv = problem.add_node(Node::new("conv", [2]).with_gradient_bytes(1000));
    let fc = problem.add_node(Node::new("fc", [1]).with_gradient_bytes(1000));
    problem.add_edge(conv, fc);
    let mut costs = TableCosts::new();
    let lanes = lanes();
    let of = |step: char| count(lanes[0], |found| found == step);
    let moved = |step: char| count(lanes[1], |found| found == step);
    let steps = |names: [char; 3]| {
        let [forward_us, backward_us, update_us] = names.map(of);
        StepTimes { forward_us, backward_us, update_us }
    };
    costs.set_steps(conv, 2, steps(['F', 'B', 'U']));
    costs.set_steps(fc, 1, steps(['f', 'b', 'u']));
    for (from, to, step) in [(2, 1, '>'), (1, 2, '<')] {
        let us = moved(step);
        costs.set_transfer(conv, from, to, TransferTimes { nested_us: us, disjoint_us: us });
    }
    costs.set_all_reduce(2, AllReduceTime { startup_us: moved('='), us_per_byte: 0.0 });
    costs.validate(&problem).expect("a valid problem");
    let arrangement = Arrangement::new(vec![vec![0, 1], vec![0]], vec![conv.0, fc.0]);
    let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
    let time = evaluator.evaluate(&arrangement).expect("a valid arrangement");
    let activity = evaluator.activity(&arrangement).expect("a valid arrangement");
    let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} in the picture, {b}");
    close(US * lanes[0].len() as f64, time.iteration_us);
    let mut gpu_time_us = 0.0;
    for (rank, pair) in lanes.chunks(2).enumerate() {
        let computing_us = count(pair[0], |step| step != '.');
        let both = pair[0].chars().zip(pair[1].chars());
        let communicating_us = US * both.filter(|&(a, b)| a == '.' && b != '.').count() as f64;
        close(computing_us, activity[rank].computing_us);
        close(communicating_us, activity[rank].communicating_us);
        gpu_time_us += computing_us + communicating_us;
    }
    close(gpu_time_us, time.gpu_time_us);
}

//! A problem that cannot be planned is an error that names the place.

use burst_planner::{
    Error, LimitRule, NodeId, NodeOption, Plan, PlanProblem, SearchOptions, data_parallel, evaluate, fastest,
    frontier,
};

/// Two nodes with two options each, and the edge between them.
fn sound() -> PlanProblem {
    let mut problem = PlanProblem::new(4);
    for name in ["conv", "fc"] {
        problem.add_node(name, [NodeOption::new(1, 100.0), NodeOption::new(4, 40.0)]);
    }
    problem.add_edge(NodeId(0), NodeId(1), vec![vec![0.0, 5.0], vec![5.0, 0.0]]);
    problem
}

/// The message for the sound problem after `spoil`.
fn message(spoil: impl FnOnce(&mut PlanProblem)) -> String {
    let mut problem = sound();
    spoil(&mut problem);
    let error = problem.validate().expect_err("the problem was spoilt");
    let message = error.to_string();
    // Everything that searches or writes says the same.
    let options = SearchOptions::default();
    let others = [
        fastest(&problem, 2.0, &options).err(),
        frontier(&problem, &options).err(),
        data_parallel(&problem).err(),
        Plan::from_choice(&problem, vec![0, 0]).err(),
        problem.to_json().err(),
    ];
    for other in others {
        assert_eq!(other.map(|error| error.to_string()).as_ref(), Some(&message));
    }
    message
}

#[test]
fn the_sound_problem_is_sound() {
    assert_eq!(sound().validate(), Ok(()));
}

#[test]
fn nothing_to_plan() {
    assert_eq!(message(|p| p.gpus = 0), "gpus is 0: a problem needs at least one GPU");
    assert_eq!(message(|p| *p = PlanProblem::new(4)), "the problem has no nodes");
    assert_eq!(message(|p| p.nodes[1].options.clear()), "node `fc` has no options");
    assert_eq!(message(|p| p.nodes[1].name = "conv".into()), "nodes 0 and 1 are both named `conv`");
}

#[test]
fn options_that_cannot_be() {
    let expected = |gpus| format!("node `fc`, option 1: needs {gpus} GPUs, expected 1 to 4");
    for gpus in [0, 5] {
        assert_eq!(message(|p| p.nodes[1].options[1].gpus = gpus), expected(gpus));
    }
    let expected = |field, value| {
        format!("node `conv`, option 0: {field} is {value}, expected a finite time that is not negative")
    };
    for value in [f64::NAN, -1.0, f64::INFINITY] {
        assert_eq!(message(|p| p.nodes[0].options[0].time_us = value), expected("time_us", value));
        assert_eq!(
            message(|p| p.nodes[0].options[0].all_reduce_us = value),
            expected("all_reduce_us", value)
        );
        assert_eq!(
            message(|p| p.nodes[0].options[0].backward_us = Some(value)),
            expected("backward_us", value)
        );
    }
    assert_eq!(
        message(|p| p.nodes[0].options[0].backward_us = Some(101.0)),
        "node `conv`, option 0: backward_us is 101, more than time_us, 100"
    );
    assert_eq!(
        message(|p| p.memory_limit_bytes = Some(10)),
        "node `conv`, option 0: memory_bytes is missing, and the problem has memory_limit_bytes"
    );
    assert_eq!(
        message(|p| p.nodes.iter_mut().for_each(|node| node.options[1].time_us = f64::MAX)),
        "the times add up to more than a number can hold"
    );
}

#[test]
fn the_time_on_one_gpu() {
    let without = |p: &mut PlanProblem| p.nodes[1].options[0].gpus = 2;
    assert_eq!(message(without), "node `fc` has no option with one GPU: give single_gpu_us");
    let mut problem = sound();
    without(&mut problem);
    problem.single_gpu_us = Some(150.0);
    assert_eq!(problem.validate(), Ok(()));
    assert_eq!(problem.single_gpu_time_us().to_bits(), 150.0_f64.to_bits());

    assert_eq!(
        message(|p| p.single_gpu_us = Some(0.0)),
        "the time on a single GPU is 0: amplification is not defined"
    );
    assert_eq!(
        message(|p| p.single_gpu_us = Some(f64::NAN)),
        "the problem: single_gpu_us is NaN, expected a finite time that is not negative"
    );
}

#[test]
fn edges_that_cannot_be() {
    assert_eq!(message(|p| p.edges[0].to = NodeId(2)), "edge 0: node 2 does not exist, there are 2 nodes");
    assert_eq!(message(|p| p.edges[0].to = NodeId(0)), "edge 0 leads from node `conv` to itself");
    assert_eq!(message(|p| p.edges.push(p.edges[0].clone())), "edges 0 and 1 both lead from `conv` to `fc`");
    let cycle = message(|p| {
        p.add_edge(NodeId(1), NodeId(0), vec![vec![0.0; 2]; 2]);
    });
    assert!(cycle.starts_with("the edges form a cycle through node `"), "{cycle}");
}

#[test]
fn matrices_that_cannot_be() {
    assert_eq!(
        message(|p| p.edges[0].transfer_us.truncate(1)),
        "edge 0 (`conv` to `fc`): transfer_us has 1 rows, expected 2 rows of 2"
    );
    assert_eq!(
        message(|p| p.edges[0].transfer_us[1].push(1.0)),
        "edge 0 (`conv` to `fc`): transfer_us has 3 entries in row 1, expected 2 rows of 2"
    );
    assert_eq!(
        message(|p| p.edges[0].transfer_disjoint_us = Some(vec![])),
        "edge 0 (`conv` to `fc`): transfer_disjoint_us has 0 rows, expected 2 rows of 2"
    );
    assert_eq!(
        message(|p| p.edges[0].transfer_us[1][0] = -2.0),
        "edge 0 (`conv` to `fc`), cell [1][0]: transfer_us is -2, expected a finite time that is not negative"
    );
}

#[test]
fn limits_that_cannot_be() {
    let options = SearchOptions::default();
    for limit in [0.99, -1.0, f64::NAN, f64::NEG_INFINITY] {
        assert!(matches!(fastest(&sound(), limit, &options), Err(Error::BadLimit { .. })));
        let points = frontier(&sound(), &options).expect("the problem is sound");
        assert!(matches!(points.fastest_within(limit), Err(Error::BadLimit { .. })));
        let budget = points.fastest_within_gpu_time_us(f64::NAN);
        assert!(matches!(budget, Err(Error::BadBudget { .. })));
    }
    for epsilon in [-0.1, f64::NAN, f64::INFINITY] {
        let options = SearchOptions::with_epsilon(epsilon);
        assert!(matches!(fastest(&sound(), 2.0, &options), Err(Error::BadEpsilon { .. })));
    }
}

#[test]
fn a_limit_that_nothing_meets_says_what_can_be_reached() {
    let mut problem = sound();
    problem.edges[0].transfer_us = vec![vec![10.0; 2]; 2];
    let error = fastest(&problem, 1.0, &SearchOptions::default()).expect_err("neighbours pay a transfer");
    assert_eq!(error, Error::LimitUnreachable { limit: 1.0, smallest: 1.05 });
    let points = frontier(&problem, &SearchOptions::default()).expect("the problem is sound");
    assert_eq!(points.fastest_within(1.0).err(), Some(error));
    let budget = points.fastest_within_gpu_time_us(200.0).err();
    assert_eq!(budget, Some(Error::BudgetUnreachable { budget_us: 200.0, smallest_us: 210.0 }));
}

#[test]
fn when_nothing_fits_the_largest_are_named() {
    let mut problem = sound();
    problem.memory_limit_bytes = Some(100);
    for (node, bytes) in problem.nodes.iter_mut().zip([60, 70]) {
        node.options.iter_mut().for_each(|option| option.memory_bytes = Some(bytes));
    }
    let expected = "nothing fits: rank 0 needs at least 130 bytes, memory_limit_bytes is 100; most is taken by \
                    `fc` (70), `conv` (60)";
    let error = fastest(&problem, 2.0, &SearchOptions::default()).expect_err("it does not fit");
    assert_eq!(error.to_string(), expected);
    assert_eq!(data_parallel(&problem).err(), Some(error));
}

#[test]
fn a_choice_of_another_problem() {
    assert_eq!(evaluate(&sound(), &[0]), Err(Error::ChoiceLength { found: 1, nodes: 2 }));
    let error = Error::ChoiceOption { node: "fc".into(), option: 2, options: 2 };
    assert_eq!(evaluate(&sound(), &[0, 2]), Err(error));
}

#[test]
fn a_graph_too_dense_is_refused() {
    let mut problem = PlanProblem::new(8);
    for node in 0..12 {
        problem.add_node(format!("n{node}"), (1..=8).map(|gpus| NodeOption::new(gpus, 1.0)));
        for from in 0..node {
            problem.add_edge(NodeId(from), NodeId(node), vec![vec![0.0; 8]; 8]);
        }
    }
    let error = fastest(&problem, 2.0, &SearchOptions::default()).expect_err("8^12 table entries");
    assert!(matches!(&error, Error::TooWide { node, .. } if node == "n0"), "{error}");
}

#[test]
fn a_search_that_grows_too_large_is_given_up() {
    let mut problem = PlanProblem::new(2);
    for node in 0..30 {
        // Every choice has its own time, and what is gained in it is lost in GPU time.
        let us = 2.0_f64.powi(node);
        problem.add_node(format!("n{node}"), [NodeOption::new(1, 2.0 * us), NodeOption::new(2, 1.5 * us)]);
    }
    let mut options = SearchOptions::default();
    options.max_labels = 1000;
    assert_eq!(frontier(&problem, &options), Err(Error::TooManyLabels { max_labels: 1000, epsilon: 0.0 }));
}

#[test]
fn the_limit_for_each_layer_knows_nothing_of_memory() {
    let mut problem = sound();
    let per_layer = SearchOptions::default().with_limit_rule(LimitRule::PerLayer);
    assert!(fastest(&problem, 2.0, &per_layer).is_ok());
    problem.memory_limit_bytes = Some(10);
    for option in problem.nodes.iter_mut().flat_map(|node| &mut node.options) {
        option.memory_bytes = Some(1);
    }
    assert_eq!(fastest(&problem, 2.0, &per_layer), Err(Error::MemoryLimitPerLayer));
}

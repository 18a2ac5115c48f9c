//! Where the original goes wrong, one test for each.

use burst_planner::{
    LimitRule, NodeId, NodeOption, PlanProblem, SearchOptions, TimeModel, data_parallel, evaluate_overlap,
    fastest, gpu_counts,
};

use crate::original_data::Model;

/// Inception-V3 with branches that may sit on ranks of their own, at the price of a transfer to twice as many GPUs.
fn inception(gpus: usize, latency_us: f64) -> Option<PlanProblem> {
    let mut problem = Model::load("inception_v3")?.problem(gpus, latency_us);
    for edge in &mut problem.edges {
        let largest = edge.transfer_us.iter().flatten().copied().fold(0.0, f64::max);
        let disjoint =
            edge.transfer_us.iter().map(|row| row.iter().map(|us| us.max(largest / 2.0)).collect());
        edge.transfer_disjoint_us = Some(disjoint.collect());
    }
    Some(problem)
}

#[test]
fn plans_take_more_gpus_than_there_are() {
    let Some(problem) = inception(8, 40.0) else { return };
    for limit in [1.5, 2.0, 3.0, 5.0] {
        let plan = fastest(&problem, limit, &SearchOptions::default()).unwrap();
        assert!(plan.gpus <= 8, "{}", plan.gpus);
        assert!(plan.assignments.iter().all(|layer| layer.ranks.end <= 8));
    }
}

#[test]
fn the_limit_is_not_kept() {
    let Some(problem) = inception(8, 240.0) else { return };
    for limit in [1.5, 2.0, 3.0] {
        let plan = fastest(&problem, limit, &SearchOptions::default()).unwrap();
        assert!(plan.totals.amplification <= limit * (1.0 + 1e-9));
    }
    // Its plan was slower than data parallelism, too.
    let parallel = data_parallel(&problem).unwrap();
    let plan = fastest(&problem, parallel.totals.amplification, &SearchOptions::default()).unwrap();
    assert!(plan.totals.iteration_us <= parallel.totals.iteration_us);
}

#[test]
fn more_gpus_make_plans_slower() {
    let Some(model) = Model::load("vgg16") else { return };
    let time = |gpus: usize, rule| {
        let options = SearchOptions::default().with_limit_rule(rule);
        fastest(&model.problem(gpus, 240.0), 1.5, &options).unwrap().totals.iteration_us
    };
    let times: Vec<f64> = [1, 2, 4, 8, 16, 32, 64].map(|gpus| time(gpus, LimitRule::Total)).to_vec();
    assert!(times.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-9)), "{times:?}");
    assert!(
        time(64, LimitRule::PerLayer) > 2.0 * time(8, LimitRule::PerLayer),
        "the rule is not the original's"
    );
}

/// Two layers on two GPUs whose gradients take as long as their backward pass.
fn with_gradients(all_reduce_us: f64) -> PlanProblem {
    let mut problem = PlanProblem::new(2);
    for name in ["conv", "block"] {
        let two = NodeOption::new(2, 60.0).with_backward_us(40.0).with_all_reduce_us(all_reduce_us);
        problem.add_node(name, [NodeOption::new(1, 100.0), two]);
    }
    problem.add_edge(NodeId(0), NodeId(1), vec![vec![0.0, 5.0], vec![5.0, 0.0]]);
    problem
}

#[test]
fn synchronization_is_free_and_never_overlaps() {
    let time = |problem: &PlanProblem| data_parallel(problem).unwrap().totals.iteration_us;
    let (free, charged) = (with_gradients(0.0), with_gradients(40.0));
    assert!((time(&charged) - time(&free) - 80.0).abs() < 1e-9);
    // With overlap one of the two all-reduces hides.
    let overlapped = evaluate_overlap(&charged, &[1, 1]).unwrap().iteration_us;
    assert!((overlapped - time(&free) - 40.0).abs() < 1e-9);
    // What synchronization costs decides on the plan.
    let gpus = |problem: &PlanProblem| {
        let options = SearchOptions::default().with_time_model(TimeModel::Overlap);
        fastest(problem, f64::INFINITY, &options).unwrap().gpus
    };
    assert_eq!((gpus(&free), gpus(&with_gradients(200.0))), (2, 1));
}

#[test]
fn a_missing_time_costs_nothing() {
    let document = |option: &str| {
        format!(
            r#"{{"schema":"deeppool/plan-problem/v1","gpus":2,"nodes":[{{"name":"conv","options":[{option}]}}],"edges":[]}}"#
        )
    };
    let error = |option: &str| PlanProblem::from_json(&document(option)).unwrap_err().to_string();
    assert!(error(r#"{"gpus":1}"#).contains("nodes[0].options[0]"), "{}", error(r#"{"gpus":1}"#));
    assert!(error(r#"{"gpus":2,"time_us":3.0}"#).contains("`conv` has no option with one GPU"));
}

#[test]
fn layers_of_one_name_overwrite_each_other() {
    let mut problem = PlanProblem::new(1);
    problem.add_node("relu", [NodeOption::new(1, 1.0)]);
    problem.add_node("relu", [NodeOption::new(1, 2.0)]);
    assert_eq!(problem.validate().unwrap_err().to_string(), "nodes 0 and 1 are both named `relu`");
}

#[test]
fn data_parallelism_fails_with_more_gpus_than_samples() {
    let Some(model) = Model::load("vgg16") else { return };
    let plan = data_parallel(&model.problem(1024, 240.0)).unwrap();
    assert_eq!(plan.gpus, model.batch);
}

#[test]
fn gpu_counts_are_powers_of_two_up_to_64() {
    let mut problem = PlanProblem::new(1000);
    // A batch of 960 samples: the last GPU count that divides the work evenly is the best.
    let time = |gpus: usize| 960_usize.div_ceil(gpus) as f64;
    problem
        .add_node("scales", gpu_counts::all(1000).into_iter().map(|gpus| NodeOption::new(gpus, time(gpus))));
    let plan = fastest(&problem, f64::INFINITY, &SearchOptions::default()).unwrap();
    assert_eq!(plan.assignments[0].ranks, 0..960);
    let plan = fastest(&problem, 1.0, &SearchOptions::default()).unwrap();
    assert_eq!(plan.assignments[0].gpus, 960);
}

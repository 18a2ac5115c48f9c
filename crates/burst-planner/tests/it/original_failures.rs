//! Faults of the original planner that this one does not have, one test each.

use burst_planner::{
    AllReduceTime, Arrangement, Error, Evaluator, Node, PlanProblem, SearchOptions, StepTimes, TableCosts,
    gpu_counts, plan,
};

use crate::original_data::Model;

#[test]
fn plans_keep_the_number_of_gpus_and_the_limit() {
    let Some(model) = Model::load("inception_v3") else { return };
    let (problem, costs) = (model.problem(2), model.costs(240.0));
    let mut evaluator = Evaluator::new(&problem, &costs).unwrap();
    let single_gpu_us = evaluator.single_gpu_us().unwrap();
    let mut options = SearchOptions::default();
    options.effort = 0.1;
    for limit in [1.2, 2.0] {
        let found = plan(&problem, &costs, limit, &options).unwrap();
        found.arrangement.validate(&problem).unwrap();
        assert!(found.time.gpu_time_us <= limit * single_gpu_us * (1.0 + 1e-9));
    }
    // The original's plan was slower than data parallelism.
    let parallel = evaluator.evaluate(&Arrangement::data_parallel(&problem, 2).unwrap()).unwrap();
    let limit = (parallel.gpu_time_us / single_gpu_us).max(1.0);
    let found = plan(&problem, &costs, limit, &options).unwrap();
    assert!(found.time.iteration_us <= parallel.iteration_us);
}

#[test]
fn more_gpus_never_slow_down_a_plan() {
    let Some(model) = Model::load("vgg16") else { return };
    let costs = model.costs(240.0);
    let time = |gpus: usize| {
        let problem = model.problem(gpus);
        plan(&problem, &costs, 1.5, &SearchOptions::default()).unwrap().time.iteration_us
    };
    let times: Vec<f64> = [1, 2, 4, 8].map(time).to_vec();
    assert!(times.windows(2).all(|pair| pair[1] <= pair[0] * (1.0 + 1e-9)), "{times:?}");
    let per_layer = |gpus: usize| {
        let chain = model.chain(gpus, 240.0);
        chain.iteration_us(&chain.choose(1.5).unwrap())
    };
    assert!(per_layer(64) > 2.0 * per_layer(8), "the rule is not the original's");
}

#[test]
fn all_reduces_have_a_cost_and_overlap_the_backward_pass() {
    let time = |all_reduce_us: f64, overlap: bool| {
        let mut problem = PlanProblem::new(2);
        problem.gradients.bucket_bytes = 1;
        problem.gradients.overlap = overlap;
        let mut costs = TableCosts::new();
        for name in ["conv", "block"] {
            let node = problem.add_node(Node::new(name, [2]).with_gradient_bytes(4));
            costs.set_steps(node, 2, StepTimes { forward_us: 20.0, backward_us: 40.0, update_us: 0.0 });
        }
        costs.set_all_reduce(2, AllReduceTime { startup_us: all_reduce_us, us_per_byte: 0.0 });
        let arrangement = Arrangement::data_parallel(&problem, 2).unwrap();
        Evaluator::new(&problem, &costs).unwrap().evaluate(&arrangement).unwrap().iteration_us
    };
    // Without overlap both gradients are in one all-reduce after the backward pass. With overlap
    // the first of two is hidden.
    assert!((time(40.0, false) - time(0.0, false) - 40.0).abs() < 1e-9);
    assert!((time(40.0, true) - time(0.0, true) - 40.0).abs() < 1e-9);
    assert!((time(80.0, true) - time(0.0, true) - 120.0).abs() < 1e-9);
}

#[test]
fn a_missing_time_is_an_error() {
    let document = |option: &str| {
        format!(
            r#"{{"schema":"deeppool/plan-problem/v2","gpus":2,
            "nodes":[{{"name":"conv","options":[{option}]}}],"edges":[]}}"#
        )
    };
    let error = |option: &str| PlanProblem::from_json(&document(option)).unwrap_err().to_string();
    assert!(error(r#"{"gpus":1}"#).contains("nodes[0].options[0]"), "{}", error(r#"{"gpus":1}"#));
}

#[test]
fn layers_of_one_name_are_refused() {
    let mut problem = PlanProblem::new(1);
    problem.add_node(Node::new("relu", [1]));
    problem.add_node(Node::new("relu", [1]));
    assert_eq!(problem.validate().unwrap_err().to_string(), "nodes 0 and 1 are both named `relu`");
}

#[test]
fn data_parallelism_on_more_gpus_than_samples_is_an_error() {
    let Some(model) = Model::load("vgg16") else { return };
    let (problem, costs) = (model.problem(1024), model.costs(240.0));
    let mut evaluator = Evaluator::new(&problem, &costs).unwrap();
    let all = Arrangement::data_parallel(&problem, 1024).unwrap();
    assert!(matches!(evaluator.evaluate(&all), Err(Error::NoTimes { gpus: 1024, .. })));
    assert!(evaluator.evaluate(&Arrangement::data_parallel(&problem, model.batch).unwrap()).is_ok());
}

#[test]
fn any_gpu_counts_are_possible() {
    let counts = gpu_counts::powers_of_two_and_max(1000);
    assert_eq!(counts.last(), Some(&1000));
    assert_eq!(gpu_counts::all(5), [1, 2, 3, 4, 5]);
}

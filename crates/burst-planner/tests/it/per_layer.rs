//! The original's planner on chains of planning problems.

use burst_planner::per_layer::{self, LayerChain};
use burst_planner::testing::{Graph, RandomProblem, random_problem_on};
use burst_planner::{CostModel, Error, Evaluator, Node, NodeId, PlanProblem, ShardSize};

#[test]
fn plans_of_chains_are_valid_and_evaluated() {
    for seed in 0..20 {
        let RandomProblem { mut problem, costs, .. } = random_problem_on(seed, Graph::Chain, 6, 4);
        problem.memory_limit_bytes = None;
        let plan = per_layer::plan(&problem, &costs, 1.5).expect("a chain");
        plan.arrangement.validate(&problem).expect("a valid arrangement");
        let time = Evaluator::new(&problem, &costs).unwrap().evaluate(&plan.arrangement).unwrap();
        assert_eq!(plan.time, time);
    }
}

#[test]
fn a_chain_has_the_times_of_its_problem() {
    let RandomProblem { problem, costs, .. } = random_problem_on(3, Graph::Chain, 4, 2);
    let chain = LayerChain::from_problem(&problem, &costs).expect("a chain");
    assert_eq!(chain.layers.len(), 4);
    for (index, layer) in chain.layers.iter().enumerate() {
        let one = layer.options.iter().find(|option| option.gpus == 1).expect("an option on one GPU");
        let steps = costs.compute(NodeId(index), 1, ShardSize::Larger).expect("times for one GPU");
        // Without the backward step where nothing before the node has parameters.
        assert!(one.time_us <= steps.total_us() && one.time_us >= steps.forward_us);
    }
}

#[test]
fn other_graphs_and_memory_limits_are_refused() {
    let mut problem = PlanProblem::new(2);
    let nodes = ["fork", "left", "right"].map(|name| problem.add_node(Node::new(name, [1])));
    problem.add_edge(nodes[0], nodes[1]);
    problem.add_edge(nodes[0], nodes[2]);
    let costs = burst_planner::TableCosts::new();
    let error = per_layer::plan(&problem, &costs, 1.5).unwrap_err();
    assert_eq!(error, Error::NotAChain { node: "fork".into() });
    problem.edges.pop();
    // Two chains beside each other.
    assert!(matches!(per_layer::plan(&problem, &costs, 1.5), Err(Error::NotAChain { .. })));
    problem.memory_limit_bytes = Some(1);
    assert_eq!(per_layer::plan(&problem, &costs, 1.5).unwrap_err(), Error::MemoryLimitPerLayer);
}

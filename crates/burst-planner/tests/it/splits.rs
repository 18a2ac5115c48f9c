//! Tests of splits: memory, lower bounds, and arrangements that are refused.

use burst_planner::testing::{
    Graph, HashedCosts, RandomProblem, SplitTables, add_random_splits, best_by_enumeration, random_problem,
    random_problem_on, random_split_arrangement,
};
use burst_planner::{
    Arrangement, CostModel, Error, Evaluator, Node, NodeId, NodeSplit, PlanProblem, SearchOptions, ShardSize,
    SplitCosts, StepTimes, Stop, TableCosts, TensorLayout, Values, evaluate_arrangements, frontier,
};

use crate::{cases, is_ascending};

/// Outputs of 12 bytes.
struct TwelveBytes(TableCosts);

impl CostModel for TwelveBytes {
    fn compute(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> Option<StepTimes> {
        self.0.compute(node, ranks, shard_size)
    }

    fn transfer(&self, _: NodeId, _: &[usize], _: &[usize]) -> f64 {
        1.0
    }

    fn all_reduce(&self, _: u64, _: &[usize]) -> f64 {
        1.0
    }

    fn memory(&self, node: NodeId, ranks: usize, shard_size: ShardSize) -> burst_planner::NodeMemory {
        self.0.memory(node, ranks, shard_size)
    }

    fn splits(&self) -> Option<&dyn SplitCosts> {
        Some(self)
    }
}

impl SplitCosts for TwelveBytes {
    fn compute(&self, node: NodeId, split: usize, ranks: usize, _: ShardSize) -> Option<StepTimes> {
        // The split of the last node needs a single range of samples.
        let is_possible = node.0 < 2 || split > 0 || ranks == 2;
        is_possible.then_some(StepTimes { forward_us: 1.0, backward_us: 1.0, update_us: 0.0 })
    }

    fn transfer(&self, _: NodeId, _: TensorLayout<'_>, _: TensorLayout<'_>) -> f64 {
        1.0
    }

    fn output_bytes(&self, _: NodeId, ranks: usize, parts: usize, values: Values, _: ShardSize) -> u64 {
        let of_range = 12 / (ranks / parts) as u64;
        if values == Values::Ranges { of_range / parts as u64 } else { of_range }
    }
}

/// Three nodes: one that can be divided by its output features, one by its input features, and one
/// that is copied.
fn three_nodes() -> (PlanProblem, TwelveBytes) {
    use Values::{Addends, Copies, Ranges};
    let mut problem = PlanProblem::new(4);
    problem.gradients.metrics_bytes = 0;
    let mut costs = TableCosts::new();
    let splits = [[Copies, Addends, Ranges], [Ranges, Ranges, Addends], [Copies; 3]];
    for (index, [input, input_gradient, output]) in splits.into_iter().enumerate() {
        let mut node = Node::new(index.to_string(), [1, 2, 4]);
        node.splits = vec![NodeSplit::new(2, input, input_gradient, output)];
        let id = problem.add_node(node);
        for gpus in [1, 2, 4] {
            costs.set_steps(id, gpus, StepTimes { forward_us: 1.0, backward_us: 1.0, update_us: 0.0 });
        }
        costs.set_output_bytes(id, 12);
        if index > 0 {
            problem.add_edge(NodeId(index - 1), id);
        }
    }
    (problem, TwelveBytes(costs))
}

fn on_two_ranks(splits: [Option<usize>; 3]) -> Arrangement {
    Arrangement { splits: splits.to_vec(), ..Arrangement::new(vec![vec![0, 1]; 3], vec![0, 1, 2]) }
}

#[test]
fn memory_of_split_nodes_is_that_of_their_layouts() {
    let (mut problem, costs) = three_nodes();
    let memory = |problem: &PlanProblem, splits| {
        Evaluator::new(problem, &costs).unwrap().memory(&on_two_ranks(splits)).unwrap()
    };
    // The third node is divided by samples: it receives two addends of half of the samples while
    // the output of the second node is in use, and adds them up.
    assert_eq!(memory(&problem, [Some(0), Some(0), None]), [12 + 2 * 6 + 6, 12 + 2 * 6 + 6, 0, 0]);
    // An all-reduce is in place: the outputs of the second and the third node.
    assert_eq!(memory(&problem, [Some(0); 3]), [12 + 12, 12 + 12, 0, 0]);
    problem.nodes[0].gradient_bytes = 7;
    problem.nodes[0].state_bytes = 10;
    (problem.nodes[0].splits[0].gradient_bytes, problem.nodes[0].splits[0].state_bytes) = (4, 5);
    // The backward step of the third node: the state, all outputs and a gradient.
    assert_eq!(memory(&problem, [Some(0); 3]), [5 + 6 + 12 + 12 + 12, 5 + 6 + 12 + 12 + 12, 0, 0]);
}

/// An arrangement within the limit that the search derives without a sweep is not above it.
#[test]
fn search_keeps_memory_limits_of_arrangements_with_splits() {
    for seed in 0..200 {
        let mut problem = random_problem(seed).problem;
        add_random_splits(&mut problem, seed);
        let arrangement = random_split_arrangement(&problem, seed);
        let costs = HashedCosts { seed, integral: false };
        let peak = Evaluator::new(&problem, &costs).unwrap().memory(&arrangement).unwrap();
        let needed_bytes = peak.into_iter().max().unwrap();
        let evaluated = |limit: u64| {
            let mut limited = problem.clone();
            limited.memory_limit_bytes = Some(limit);
            let given = [arrangement.clone()];
            evaluate_arrangements(&limited, &costs, given, &Stop::default())
        };
        assert!(evaluated(needed_bytes).is_ok(), "seed {seed}");
        if needed_bytes > 0 {
            let error = evaluated(needed_bytes - 1).unwrap_err();
            assert!(matches!(error, Error::MemoryExceeded { .. }), "seed {seed}: {error}");
        }
    }
}

#[test]
fn impossible_splits_are_refused() {
    let (mut problem, costs) = three_nodes();
    let refused = |problem: &PlanProblem, arrangement: &Arrangement| {
        let evaluated = Evaluator::new(problem, &costs).and_then(|mut all| all.evaluate(arrangement));
        evaluated.unwrap_err().to_string()
    };
    let text = refused(&problem, &on_two_ranks([Some(1), None, None]));
    assert!(text.contains("node `0` has no split 1"), "{text}");
    let mut arrangement = on_two_ranks([Some(0), None, None]);
    arrangement.ranks[0] = vec![0, 1, 2];
    let text = refused(&problem, &arrangement);
    assert!(text.contains("node `0` is in 2 parts on 3 ranks"), "{text}");
    arrangement.splits.pop();
    let text = refused(&problem, &arrangement);
    assert!(text.contains("the splits of 2 nodes, the problem has 3"), "{text}");
    let mut arrangement = on_two_ranks([None, None, Some(0)]);
    arrangement.ranks[2] = vec![0, 1, 2, 3];
    let text = refused(&problem, &arrangement);
    assert!(text.contains("node `2` cannot run with split 0 on 4 GPUs"), "{text}");
    problem.nodes[0].gradient_bytes = 8;
    problem.nodes[2].parameters_of = Some(NodeId(0));
    let text = refused(&problem, &on_two_ranks([Some(0), None, None]));
    assert!(text.contains("node `2` uses the parameters of `0`"), "{text}");
    assert!(Evaluator::new(&problem, &costs).unwrap().evaluate(&on_two_ranks([Some(0); 3])).is_ok());
    problem.nodes[1].splits[0].parts = 1;
    let text = refused(&problem, &on_two_ranks([None; 3]));
    assert!(text.contains("node `1`, split 0: has 1 parts"), "{text}");
}

/// Returns a random problem with splits that can be enumerated: two to four nodes on two to four
/// GPUs.
fn small(seed: u64) -> RandomProblem {
    let graph = [Graph::Chain, Graph::Branches, Graph::Dag][seed as usize % 3];
    let gpus = 2 + seed as usize / 3 % 3;
    let nodes = if gpus == 4 { 2 + seed as usize / 9 % 2 } else { 2 + seed as usize / 9 % 3 };
    let mut random = random_problem_on(seed, graph, nodes, gpus);
    random.problem.gradients.bucket_bytes = [0, 1 << 21, u64::MAX][seed as usize / 27 % 3];
    add_random_splits(&mut random.problem, seed);
    for node in &mut random.problem.nodes {
        node.splits.truncate(2);
    }
    random
}

#[test]
fn no_arrangement_with_splits_is_faster_than_the_bound() {
    let (mut gaps, mut split) = (Vec::new(), 0);
    for seed in 0..cases(100) {
        let RandomProblem { problem, costs, .. } = small(seed);
        let costs = SplitTables { problem: &problem, tables: &costs };
        let best = best_by_enumeration(&problem, &costs).unwrap();
        // A bound is at most the time of a known plan, so only a slow one is known.
        let known = [Arrangement::data_parallel(&problem, 1).unwrap()];
        let frontier = evaluate_arrangements(&problem, costs, known, &Stop::default()).unwrap();
        for limit in [1.0, 1.2, 1.5, 2.0, 4.0] {
            let Some(plan) = best.fastest_within(limit) else { continue };
            let bound_us = frontier.lower_bound_us(limit);
            let best_us = plan.time.iteration_us;
            assert!(bound_us <= best_us * (1.0 + 1e-9), "seed {seed}, {limit}: {bound_us} of {best_us} us");
            gaps.push(best_us / bound_us - 1.0);
            split += usize::from(plan.arrangement.is_split());
        }
    }
    gaps.sort_by(f64::total_cmp);
    let median = gaps[gaps.len() / 2];
    println!("{} questions, {split} with splits; from the bound to the best: median {median:.3}", gaps.len());
    assert!(split > gaps.len() / 10, "only {split} of {} plans have splits", gaps.len());
}

#[test]
fn plans_with_splits_mostly_match_enumeration() {
    let (mut compared, mut split, mut worse) = (0, 0, Vec::new());
    for seed in 0..cases(40) {
        let RandomProblem { problem, costs, .. } = small(seed);
        let costs = SplitTables { problem: &problem, tables: &costs };
        let best = best_by_enumeration(&problem, &costs).unwrap();
        let found = frontier(&problem, costs, &SearchOptions::default()).unwrap();
        for limit in [1.0, 1.2, 1.5, 2.0, 4.0] {
            let Some(optimum) = best.fastest_within(limit) else { continue };
            let best_us = optimum.time.iteration_us;
            compared += 1;
            split += usize::from(optimum.arrangement.is_split());
            let Ok(plan) = found.fastest_within(limit) else {
                worse.push((seed, limit, f64::INFINITY));
                continue;
            };
            let slower = plan.time.iteration_us / best_us - 1.0;
            assert!(slower >= -1e-9 || !is_ascending(&plan.arrangement), "seed {seed}, {limit}: {slower}");
            assert!(found.lower_bound_us(limit) <= plan.time.iteration_us.min(best_us) * (1.0 + 1e-9));
            if slower > 1e-9 {
                worse.push((seed, limit, slower));
            }
        }
    }
    println!("{compared} questions, {split} of the best have splits; worse: {worse:?}");
    assert!(split > compared / 10, "only {split} of {compared} have splits");
    assert!(worse.len() as f64 <= 0.01 * compared as f64 + 1.0, "{} of {compared}: {worse:?}", worse.len());
}

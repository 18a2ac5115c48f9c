//! Strategies of the crate `proptest`, which draw random inputs of tests.

use proptest::prelude::*;

use super::{Graph, RandomProblem, random_arrangement, random_problem_on};
use crate::Arrangement;

/// Returns a strategy for problems on graphs of all kinds, with numbers of nodes and GPUs in these
/// ranges. Failing cases shrink in both.
pub fn problems(
    nodes: std::ops::RangeInclusive<usize>,
    gpus: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = RandomProblem> {
    let graphs = prop::sample::select(vec![Graph::Chain, Graph::Branches, Graph::Dag]);
    (graphs, nodes, gpus, any::<u64>())
        .prop_map(|(graph, nodes, gpus, seed)| random_problem_on(seed, graph, nodes, gpus))
}

/// Returns a strategy for problems drawn from `problems` with a random arrangement each.
pub fn arrangements(
    problems: impl Strategy<Value = RandomProblem>,
) -> impl Strategy<Value = (RandomProblem, Arrangement)> {
    (problems, any::<u64>()).prop_map(|(random, seed)| {
        let arrangement = random_arrangement(&random.problem, seed);
        (random, arrangement)
    })
}

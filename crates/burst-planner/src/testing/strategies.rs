//! Random problems for proptest.

use proptest::prelude::*;

use super::{Graph, RandomProblem, random_arrangement, random_problem_on};
use crate::Arrangement;

/// Problems on graphs of all kinds, with so many nodes and GPUs. Those that break a test are made smaller in both.
pub fn problems(
    nodes: std::ops::RangeInclusive<usize>,
    gpus: std::ops::RangeInclusive<usize>,
) -> impl Strategy<Value = RandomProblem> {
    let graphs = prop::sample::select(vec![Graph::Chain, Graph::Branches, Graph::Dag]);
    (graphs, nodes, gpus, any::<u64>())
        .prop_map(|(graph, nodes, gpus, seed)| random_problem_on(seed, graph, nodes, gpus))
}

/// Problems with an arrangement each, as random as it can be.
pub fn arrangements(
    problems: impl Strategy<Value = RandomProblem>,
) -> impl Strategy<Value = (RandomProblem, Arrangement)> {
    (problems, any::<u64>()).prop_map(|(random, seed)| {
        let arrangement = random_arrangement(&random.problem, seed);
        (random, arrangement)
    })
}

//! Benchmarks of searches, evaluations and lower bounds for common graphs.

// The functions that `criterion_group!` generates have no documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use burst_planner::testing::{Graph, RandomProblem, random_problem_on};
use burst_planner::{Arrangement, Evaluator, SearchOptions, frontier};
use criterion::{Criterion, criterion_group, criterion_main};

fn searches(criterion: &mut Criterion) {
    for (name, graph) in [("chain", Graph::Chain), ("branches", Graph::Branches)] {
        let mut group = criterion.benchmark_group(format!("frontier of a {name} graph"));
        group.sample_size(10);
        for (nodes, gpus) in [(20, 4), (40, 4), (40, 8)] {
            let RandomProblem { problem, costs, .. } = random_problem_on(1, graph, nodes, gpus);
            group.bench_function(format!("{nodes} nodes, {gpus} GPUs"), |b| {
                b.iter(|| frontier(black_box(&problem), &costs, &SearchOptions::default()));
            });
        }
        group.finish();
    }
}

fn evaluations(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("evaluation of data parallelism");
    for nodes in [50, 200] {
        let RandomProblem { problem, costs, .. } = random_problem_on(1, Graph::Chain, nodes, 8);
        let arrangement = Arrangement::data_parallel(&problem, 8).expect("a valid problem");
        let mut evaluator = Evaluator::new(&problem, &costs).expect("a valid problem");
        group.bench_function(format!("{nodes} nodes, 8 GPUs"), |b| {
            b.iter(|| evaluator.evaluate(black_box(&arrangement)));
        });
    }
    group.finish();
}

fn bounds(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lower bound of a chain");
    group.sample_size(10);
    let RandomProblem { problem, costs, .. } = random_problem_on(1, Graph::Chain, 20, 4);
    let found = frontier(&problem, &costs, &SearchOptions::default()).expect("a valid problem");
    group.bench_function("20 nodes, 4 GPUs", |b| b.iter(|| found.lower_bound_us(black_box(1.5))));
    group.finish();
}

criterion_group!(benches, searches, evaluations, bounds);
criterion_main!(benches);

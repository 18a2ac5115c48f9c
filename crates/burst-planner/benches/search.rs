//! How long a user waits for a plan: networks of the usual shapes with costs that differ from layer to layer.

// What `criterion_group!` generates has no documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use burst_planner::{
    NodeId, NodeOption, PlanProblem, SearchOptions, fastest, frontier, gpu_counts, supported,
};
use criterion::{Criterion, criterion_group, criterion_main};

/// Layers with pseudo-random work, part of which no number of GPUs makes faster.
struct Network {
    problem: PlanProblem,
    state: u64,
}

impl Network {
    fn new(gpus: usize) -> Self {
        Self { problem: PlanProblem::new(gpus), state: 1 }
    }

    /// Uniform in 0..1 (the high bits of Knuth's linear congruential generator).
    fn random(&mut self) -> f64 {
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn layer(&mut self, counts: &[usize], producers: &[usize]) -> usize {
        let (work_us, fixed_us) = (100.0 + 1900.0 * self.random(), 10.0 + 60.0 * self.random());
        let parameters_us = 40.0 * self.random();
        let option = |&gpus: &usize| {
            let k = gpus as f64;
            let all_reduce_us = if gpus == 1 { 0.0 } else { 5.0 + parameters_us * (k - 1.0) / k };
            NodeOption::new(gpus, work_us / k + fixed_us).with_all_reduce_us(all_reduce_us)
        };
        let name = format!("layer {}", self.problem.nodes.len());
        let layer = self.problem.add_node(name, counts.iter().map(option));
        for &producer in producers {
            let samples_us = 100.0 * self.random();
            let from: Vec<usize> = self.problem.nodes[producer].options.iter().map(|o| o.gpus).collect();
            let cell = |a: usize, b: usize| {
                let (a, b) = (a as f64, b as f64);
                if (a - b).abs() < 0.5 { 0.0 } else { 10.0 + samples_us * (1.0 / a - 1.0 / b).abs() }
            };
            let matrix = from.iter().map(|&a| counts.iter().map(|&b| cell(a, b)).collect()).collect();
            self.problem.add_edge(NodeId(producer), layer, matrix);
        }
        layer.0
    }
}

/// A chain such as VGG-16.
fn chain(layers: usize, counts: &[usize]) -> PlanProblem {
    let mut network = Network::new(counts[counts.len() - 1]);
    let mut last = network.layer(counts, &[]);
    for _ in 1..layers {
        last = network.layer(counts, &[last]);
    }
    network.problem
}

/// Modules of four branches of one to four layers, every other one with a fork inside a branch: such as
/// Inception-V3, 18 layers a module.
fn inception(modules: usize, counts: &[usize]) -> PlanProblem {
    let mut network = Network::new(counts[counts.len() - 1]);
    let mut fork = network.layer(counts, &[]);
    for module in 0..modules {
        let mut ends = Vec::new();
        for length in [1, 2, 3, 4] {
            let mut last = fork;
            for _ in 0..length {
                last = network.layer(counts, &[last]);
            }
            if length == 3 && module % 2 == 0 {
                ends.push(network.layer(counts, &[last]));
                ends.push(network.layer(counts, &[last]));
                let (left, right) = (ends.pop(), ends.pop());
                last = network.layer(counts, &[left, right].into_iter().flatten().collect::<Vec<_>>());
            }
            ends.push(last);
        }
        fork = network.layer(counts, &ends);
        for _ in 0..4 {
            fork = network.layer(counts, &[fork]);
        }
    }
    network.problem
}

/// A fork, so many branches of three layers, a join; branches may run at once.
fn fork_join(branches: usize, gpus: usize) -> PlanProblem {
    let counts = gpu_counts::powers_of_two_and_max(gpus);
    let mut network = Network::new(gpus);
    let fork = network.layer(&counts, &[]);
    let ends: Vec<usize> =
        (0..branches).map(|_| (0..3).fold(fork, |last, _| network.layer(&counts, &[last]))).collect();
    network.layer(&counts, &ends);
    for edge in &mut network.problem.edges {
        let disjoint = edge.transfer_us.iter().map(|row| row.iter().map(|us| us + 20.0).collect());
        edge.transfer_disjoint_us = Some(disjoint.collect());
    }
    network.problem
}

fn tolerant() -> SearchOptions {
    SearchOptions::with_epsilon(1e-3)
}

fn chains(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("chain of 1000 layers, 16 options");
    group.sample_size(10);
    let problem = chain(1000, &gpu_counts::powers_of_two_and_max(1 << 15));
    group.bench_function("supported points and a plan under a limit, to 0.1%", |b| {
        b.iter(|| (supported(black_box(&problem), &tolerant()), fastest(&problem, 1.2, &tolerant())));
    });
    group.bench_function("optimal plan under a limit", |b| {
        b.iter(|| fastest(black_box(&problem), 1.2, &SearchOptions::default()));
    });
    group.bench_function("frontier to 0.1%", |b| b.iter(|| frontier(black_box(&problem), &tolerant())));
    group.finish();
}

/// How the time of a frontier to 0.1% grows.
fn growth(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("growth with layers: chain, 8 options");
    group.sample_size(10);
    for layers in [50, 100, 200, 400] {
        let problem = chain(layers, &gpu_counts::powers_of_two_and_max(128));
        group.bench_function(format!("{layers} layers"), |b| {
            b.iter(|| frontier(black_box(&problem), &tolerant()));
        });
    }
    group.finish();
    let mut group =
        criterion.benchmark_group("growth with options: inception-like graph of 217 layers, serial");
    group.sample_size(10);
    for options in [2, 4, 8] {
        let problem = inception(13, &gpu_counts::powers_of_two_and_max(1 << (options - 1)));
        group.bench_function(format!("{options} options"), |b| {
            b.iter(|| frontier(black_box(&problem), &tolerant()));
        });
    }
    group.finish();
    let mut group = criterion.benchmark_group("growth with branches: one region in waves, 8 GPUs");
    group.sample_size(10);
    for branches in [2, 3, 4, 5, 6] {
        let problem = fork_join(branches, 8);
        group.bench_function(format!("{branches} branches"), |b| {
            b.iter(|| frontier(black_box(&problem), &tolerant()));
        });
    }
    group.finish();
}

criterion_group!(benches, chains, growth);
criterion_main!(benches);

//! How long a user waits for a plan: networks of the usual shapes with costs that differ from layer to layer.

// What `criterion_group!` generates has no documentation.
#![allow(missing_docs)]

use std::hint::black_box;

use burst_planner::{NodeOption, PlanProblem, SearchOptions, fastest, frontier, gpu_counts};
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
            self.problem.add_edge(producer, layer, matrix);
        }
        layer
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

fn searches(criterion: &mut Criterion) {
    let problems = [
        ("chain of 40 layers, 8 options", chain(40, &gpu_counts::powers_of_two(128))),
        ("chain of 1000 layers, 16 options", chain(1000, &gpu_counts::powers_of_two(1 << 15))),
        ("inception-like graph of 217 layers, 4 options", inception(13, &gpu_counts::powers_of_two(8))),
        ("inception-like graph of 217 layers, 8 options", inception(13, &gpu_counts::powers_of_two(128))),
    ];
    for (name, problem) in &problems {
        let mut group = criterion.benchmark_group(*name);
        group.sample_size(10);
        let tolerant = SearchOptions::with_epsilon(1e-3);
        group.bench_function("optimal plan under a limit", |b| {
            b.iter(|| fastest(black_box(problem), 1.2, &SearchOptions::default()));
        });
        group.bench_function("plan under a limit to 0.1%", |b| {
            b.iter(|| fastest(black_box(problem), 1.2, &tolerant));
        });
        // Tens of thousands of plans, and half a minute, for 1000 layers.
        if problem.nodes.len() < 1000 {
            group.bench_function("frontier to 0.1%", |b| b.iter(|| frontier(black_box(problem), &tolerant)));
        }
    }
}

criterion_group!(benches, searches);
criterion_main!(benches);

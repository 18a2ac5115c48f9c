//! How long a user waits for plans of real networks: layer times modelled for an A100, links of a DGX A100.
//!
//! The networks are planned with a global batch of 1024, the frontiers to 0.1%.

// What `criterion_group!` generates has no documentation.
#![allow(missing_docs)]

use std::collections::HashMap;
use std::hint::black_box;

use burst_planner::{PlanProblem, SearchOptions, TimeModel, fastest, frontier};
use criterion::{Criterion, criterion_group, criterion_main};
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::planning::{Mode, PlanRequest};
use layer_graph::{LayerGraph, LayerKind, zoo};
use layer_profile::DeviceModel;

const BATCH: usize = 1024;

fn problem(network: &LayerGraph, gpus: usize) -> Result<PlanProblem, Error> {
    let profile = DeviceModel::named("a100")?.profile(network, &shard_sizes(BATCH, gpus))?;
    let link = collectives::LinkModel::dgx_a100();
    let costs = Costs::new(network, &profile, &link);
    PlanRequest::new(&costs, BATCH, gpus, Mode::DataParallel).problem()
}

/// The problem with normalisations and activations planned as one with the layer before, as the original has them.
fn merged(problem: &PlanProblem, network: &LayerGraph) -> PlanProblem {
    // By node: the node that stands for it.
    let mut stands: Vec<usize> = (0..problem.nodes.len()).collect();
    for (id, layer) in network.layers().skip(1) {
        let producer = network.producers(id)[0];
        let follows = matches!(layer.kind(), LayerKind::BatchNorm { .. } | LayerKind::Relu);
        if follows && producer != network.input() && network.consumers(producer).len() == 1 {
            stands[id.index() - 1] = stands[producer.index() - 1];
        }
    }
    let mut merged = PlanProblem::new(problem.gpus);
    let mut number = HashMap::new();
    for (node, &stand) in problem.nodes.iter().zip(&stands) {
        let index = *number.entry(stand).or_insert_with(|| {
            let options = node.options.iter().map(|option| burst_planner::NodeOption {
                time_us: 0.0,
                all_reduce_us: 0.0,
                backward_us: None,
                ..option.clone()
            });
            merged.add_node(node.name.clone(), options)
        });
        for (sum, option) in merged.nodes[index].options.iter_mut().zip(&node.options) {
            sum.time_us += option.time_us;
            sum.all_reduce_us += option.all_reduce_us;
        }
    }
    for edge in &problem.edges {
        let (from, to) = (number[&stands[edge.from]], number[&stands[edge.to]]);
        if from != to {
            merged.add_edge(from, to, edge.transfer_us.clone());
        }
    }
    merged
}

fn planning(criterion: &mut Criterion) -> Result<(), Error> {
    let vgg = zoo::model("vgg16")?;
    let inception = zoo::model("inception-v3")?;
    let additive = SearchOptions::with_epsilon(1e-3).with_time_model(TimeModel::Additive);
    let waves = SearchOptions::with_epsilon(1e-3).with_time_model(TimeModel::Waves);

    let large = problem(&inception, 1024)?;
    let vgg_large = problem(&vgg, 1024)?;
    let as_the_original = merged(&large, &inception);
    let frontiers = [
        (format!("VGG-16, {} nodes, 1024 GPUs", vgg_large.nodes.len()), &vgg_large, &additive),
        (
            format!("Inception-V3, {} nodes, 1024 GPUs", as_the_original.nodes.len()),
            &as_the_original,
            &additive,
        ),
        (format!("Inception-V3, {} nodes, 1024 GPUs", large.nodes.len()), &large, &additive),
        ("Inception-V3, 8 GPUs, waves".into(), &problem(&inception, 8)?, &waves),
    ];
    let mut group = criterion.benchmark_group("frontier to 0.1%");
    group.sample_size(20);
    for (name, problem, options) in frontiers {
        group.bench_function(name, |b| b.iter(|| frontier(black_box(problem), options)));
    }
    group.finish();

    let mut group = criterion.benchmark_group("optimal plan, limit 2");
    group.sample_size(20);
    for (name, problem) in [("VGG-16, 1024 GPUs", &vgg_large), ("Inception-V3, 1024 GPUs", &large)] {
        for (model, label) in [(TimeModel::Additive, "additive"), (TimeModel::Overlap, "overlap")] {
            let options = SearchOptions::default().with_time_model(model);
            group.bench_function(format!("{name}, {label}"), |b| {
                b.iter(|| fastest(black_box(problem), 2.0, &options));
            });
        }
    }
    group.finish();
    Ok(())
}

fn run(criterion: &mut Criterion) {
    if let Err(error) = planning(criterion) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

criterion_group!(benches, run);
criterion_main!(benches);

//! The planner's evaluator matches the simulator for any network, placement, order and link.

use std::time::Duration;

use burst_planner::Evaluator;
use collectives::LinkModel;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::job::{Job, JobCosts, plan_problem};
use deeppool::program::{LowerOptions, Placement, lower_for_simulation};
use deeppool::simulate::{SimulateOptions, simulate};
use deeppool_tests::{divided, in_stretches, reordered, scattered, some_checkpoints};
use layer_engine::{Precision, Sgd};
use layer_graph::{Conv2d, LayerGraph, LayerId, LayerKind, Linear, Shape, Split, zoo};
use layer_profile::DeviceModel;
use proptest::prelude::*;

/// Maximum relative difference of iteration times.
const TOLERANCE: f64 = 1e-3;

fn links() -> Vec<LinkModel> {
    let named = |name: &str| LinkModel::named(name).unwrap();
    let hosts = |ranks: usize| named("dgx-a100").between_hosts(ranks, named("ethernet-100g")).unwrap();
    let racks = hosts(2).between_hosts(2, named("ethernet-25g")).unwrap();
    // One adapter per rank of a host, on two levels.
    let adapters = |host: LinkModel, name: &str| host.between_hosts(2, named(name).with_adapters(2)).unwrap();
    let rails = adapters(named("dgx-a100"), "ethernet-100g");
    let rails_of_racks = adapters(rails.clone(), "ethernet-25g");
    let switch = named("dgx-a100").with_max_members(None);
    vec![
        switch,
        named("ethernet-25g"),
        named("ethernet-100g"),
        hosts(2),
        hosts(3),
        racks,
        rails,
        rails_of_racks,
    ]
}

/// Returns a random network with convolutions, concatenations and shared parameters, and half of
/// the time with one or two auxiliary losses.
fn random_network(seed: u64) -> LayerGraph {
    let mut state = seed;
    let mut below = move |count: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % count
    };
    let mut net = LayerGraph::new("random", Shape::image(3, 16, 16)).unwrap();
    let mut layers: Vec<LayerId> = vec![net.input()];
    for index in 0..4 + below(10) {
        let from = |below: &mut dyn FnMut(usize) -> usize, layers: &[LayerId]| layers[below(layers.len())];
        let name = format!("layer{index}");
        let producer = from(&mut below, &layers);
        let layer = match below(5) {
            0 | 1 => net.add(&name, Conv2d::new(8 * (1 + below(3)), 3).padding(1), [producer]),
            2 => net.add(&name, LayerKind::Relu, [producer]),
            3 => net.add(&name, LayerKind::BatchNorm(layer_graph::BatchNorm::default()), [producer]),
            _ => {
                let other = from(&mut below, &layers);
                net.add(&name, LayerKind::Concat, [producer, other])
            }
        };
        layers.extend(layer);
    }
    // Connect all unused outputs to the loss.
    let ends: Vec<LayerId> = layers.iter().copied().filter(|&id| net.consumers(id).is_empty()).collect();
    let end = if let [only] = ends[..] { only } else { net.add("ends", LayerKind::Concat, ends).unwrap() };
    let flat = net.add("flat", LayerKind::Flatten, [end]).unwrap();
    let a = net.add("a", Linear::new(64), [flat]).unwrap();
    let b = net.add("b", Linear::new(64), [a]).unwrap();
    let c = net.add_tied("c", Linear::new(64), [b], b).unwrap();
    let scores = net.add("fc", Linear::new(10), [c]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    for index in 0..below(2) * (1 + below(2)) {
        let early = layers[1 + below(layers.len() - 1)];
        let flat = net.add(format!("flat{index}"), LayerKind::Flatten, [early]).unwrap();
        let scores = net.add(format!("fc{index}"), Linear::new(10), [flat]).unwrap();
        let loss = net.add(format!("loss{index}"), LayerKind::CROSS_ENTROPY, [scores]).unwrap();
        net.set_loss_weight(loss, 0.4).unwrap();
    }
    net
}

fn check(
    network: &LayerGraph,
    placement: &Placement,
    batch: usize,
    lowering: &LowerOptions,
    link: &LinkModel,
) {
    let world = placement.world();
    let mut sizes = shard_sizes(batch, world);
    sizes.extend((1..=world.min(batch)).map(|count| batch / count));
    sizes.sort_unstable();
    sizes.dedup();
    let profile = DeviceModel::named("a100").unwrap().profile(network, &sizes).unwrap();
    let mut job = Job::new(Costs::new(network, &profile, link), batch, lowering.clone());
    if placement.is_split() {
        // A multiple of each number of parts up to 8.
        job = job.with_splits(&Split::ALL, 840);
    }
    let problem = plan_problem(&job, world, &(1..=world).collect::<Vec<_>>()).unwrap();
    let arrangement = job.nodes().arrangement(placement).unwrap();
    let mut evaluator = Evaluator::new(&problem, JobCosts::new(&job)).unwrap();
    let planned = evaluator.evaluate(&arrangement).unwrap();
    let activity = evaluator.activity(&arrangement).unwrap();

    let program = lower_for_simulation(network, placement, batch, lowering).unwrap();
    let held = evaluator.memory(&arrangement).unwrap();
    for rank in &program.ranks {
        // The planner's model does not know gaps between buffers, nor what ranks hold while addends
        // and boxes move.
        let least = if placement.is_split() { 0.25 } else { 0.5 };
        let bytes = rank.memory().total_bytes();
        for &rank in &rank.represented_ranks {
            let ratio = (held[rank] as f64 + 1.0) / (bytes as f64 + 1.0);
            assert!((least..2.0).contains(&ratio), "memory of rank {rank}: {} of {bytes}", held[rank]);
        }
    }
    let options = SimulateOptions::default().with_iterations(40);
    let simulation = simulate(&program, job.costs(), &options).unwrap();
    let us = |time: Duration| time.as_secs_f64() * 1e6;
    let simulated = us(simulation.iteration);
    let off = planned.iteration_us / simulated - 1.0;
    assert!(
        off.abs() < TOLERANCE,
        "planned {} us, simulated {simulated} us: {off:+.4}",
        planned.iteration_us
    );
    let computing: f64 = activity.iter().map(|rank| rank.computing_us).sum();
    let communicating: f64 = activity.iter().map(|rank| rank.communicating_us).sum();
    let total = simulated * world as f64;
    for (quantity, planned, simulated) in [
        ("computing", computing, us(simulation.activity.computing)),
        ("communicating", communicating, us(simulation.activity.communicating)),
    ] {
        // A rank may end its last iteration before others, and is idle until they end.
        let off = (planned - simulated) / total;
        assert!(off.abs() < 1e-2, "{quantity}: planned {planned} us, simulated {simulated} us of {total} us");
    }
}

fn lowering(overlap_all_reduce: bool, bucket_bytes: u64, sync_batch_norm: bool, clip: bool) -> LowerOptions {
    let clip_norm = clip.then_some(1.0);
    let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm };
    LowerOptions::default()
        .with_optimizer(optimizer)
        .with_overlap_all_reduce(overlap_all_reduce)
        .with_bucket_bytes(bucket_bytes)
        .with_sync_batch_norm(sync_batch_norm)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: std::env::var("DEEPPOOL_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48),
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn evaluator_matches_simulator_for_random_networks(
        seed: u64,
        ranks in 1usize..9,
        batch in 8usize..20,
        link in 0usize..6,
        overlap: bool,
        bucket_bytes in prop::sample::select(vec![1, 5_000, 100_000, 25 << 20]),
        sync_batch_norm: bool,
        clip: bool,
        micro_batches in 1usize..5,
        recomputes: bool,
        is_in_stretches: bool,
        halves: bool,
        splits: bool,
    ) {
        let network = random_network(seed);
        let place = if is_in_stretches { in_stretches } else { scattered };
        let mut placement = reordered(&network, place(&network, ranks, seed).unwrap(), seed).unwrap();
        if splits {
            placement = divided(&network, placement, if halves { 2 } else { 1 }, seed).unwrap();
        }
        let checkpoints = if recomputes { some_checkpoints(&network, 2, seed) } else { Vec::new() };
        let lowering = lowering(overlap, bucket_bytes, sync_batch_norm, clip)
            .with_micro_batches(micro_batches)
            .with_checkpoints(checkpoints)
            .with_precision(if halves { Precision::Bf16 } else { Precision::F32 });
        check(&network, &placement, batch * micro_batches, &lowering, &links()[link]);
    }
}

#[test]
fn evaluator_matches_simulator_for_built_in_networks() {
    for (index, model) in ["vgg16", "inception-v3", "resnet-18", "gpt2", "digits-cnn"].into_iter().enumerate()
    {
        let network = zoo::model(model).unwrap();
        let placement = scattered(&network, 6, index as u64).unwrap();
        let placement = reordered(&network, placement, index as u64).unwrap();
        check(&network, &placement, 16, &LowerOptions::default(), &links()[index]);
        let gpus = vec![5; network.len() - 1];
        let data_parallel = Placement::first_ranks(&network, 6, &gpus).unwrap();
        check(&network, &data_parallel, 16, &LowerOptions::default(), &links()[index]);
        let checkpoints = some_checkpoints(&network, 3, index as u64);
        let recomputing = LowerOptions::default().with_checkpoints(checkpoints);
        check(&network, &data_parallel, 16, &recomputing, &links()[index]);
    }
}

/// A consumer that reads an output twice sends one gradient, once it is computed.
#[test]
fn evaluator_matches_simulator_for_an_output_that_is_read_twice() {
    let mut net = LayerGraph::new("twice", Shape::image(3, 16, 16)).unwrap();
    let input = net.input();
    let first = net.add("first", Conv2d::new(8, 3).padding(1), [input]).unwrap();
    let twice = net.add("twice", LayerKind::Concat, [first, first]).unwrap();
    let beside = net.add("beside", Conv2d::new(16, 3).padding(1), [first]).unwrap();
    let ends = net.add("ends", LayerKind::Concat, [twice, beside]).unwrap();
    let flat = net.add("flat", LayerKind::Flatten, [ends]).unwrap();
    let scores = net.add("scores", Linear::new(10), [flat]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [scores]).unwrap();
    let ranks: [&[usize]; 7] = [&[1], &[0], &[0, 1], &[0], &[0], &[0], &[0]];
    let order = net.computing_layers().map(|(id, _)| id);
    // `twice` is the later of the two, so its gradient is the first.
    let mut order: Vec<LayerId> = order.collect();
    order.swap(1, 2);
    let placement = Placement::new(&net, 2, ranks.map(<[usize]>::to_vec).to_vec()).unwrap();
    let placement = placement.with_order(&net, order).unwrap();
    check(&net, &placement, 8, &LowerOptions::default(), &links()[0]);
}

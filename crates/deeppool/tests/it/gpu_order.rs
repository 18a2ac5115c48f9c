//! Ordering of all accesses to the same memory on GPUs: kernels, copies and collectives of all
//! streams, by the emulated driver's happens-before check.

use std::fmt;
use std::time::Duration;

use cuda_emulator::{Emulator, Setting};
use deeppool::Error;
use deeppool::costs::{Costs, default_link, shard_sizes};
use deeppool::data::Dataset;
use deeppool::job::Job;
use deeppool::plan::{Mode, PlanRequest};
use deeppool::planning::find_plan;
use deeppool::program::{LowerOptions, LoweredTraining, Placement};
use deeppool::train::{
    BackgroundConfig, CheckpointConfig, CheckpointEvery, Length, TrainConfig, train_on_gpus,
};
use gpu_mux::Policy;
use layer_engine::Sgd;
use layer_graph::{BatchNorm, Conv2d, LayerGraph, LayerKind, Linear, Pool2d, Shape};
use layer_profile::DeviceModel;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use tempfile::TempDir;

use crate::emulated::on_emulated_gpus;

const BATCH: usize = 8;

/// Number of samples of the data set: an epoch has three iterations. Of the six iterations of two
/// epochs, the first two are launched kernel by kernel, the others as graphs.
const SAMPLES: usize = 30;

fn number(variable: &str) -> Option<usize> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Number of random plans per number of GPUs, from the environment.
fn plans() -> usize {
    number("DEEPPOOL_GPU_ORDER_PLANS").unwrap_or(4)
}

/// Maximum number of waits that are dropped, one in each run, from the environment.
fn max_dropped_waits() -> usize {
    number("DEEPPOOL_GPU_ORDER_WAITS").unwrap_or(4)
}

/// A network with a fork, a join, a normalisation and several kinds of layers with parameters.
pub(crate) fn network() -> LayerGraph {
    let mut net = LayerGraph::new("net", Shape::image(1, 8, 8)).unwrap();
    let input = net.input();
    let stem = net.add("conv1", Conv2d::new(4, 3).padding(1), [input]).unwrap();
    let stem = net.add("norm", BatchNorm::default(), [stem]).unwrap();
    let stem = net.add("gelu1", LayerKind::GeluTanh, [stem]).unwrap();
    let wide = net.add("conv2", Conv2d::new(4, 3).padding(1), [stem]).unwrap();
    let joined = net.add("add", LayerKind::Add, [stem, wide]).unwrap();
    let last = net.add("pool", LayerKind::AvgPool2d(Pool2d::new(2, 2)), [joined]).unwrap();
    let last = net.add("flatten", LayerKind::Flatten, [last]).unwrap();
    let last = net.add("fc1", Linear::new(8), [last]).unwrap();
    let last = net.add("gelu2", LayerKind::GeluTanh, [last]).unwrap();
    let last = net.add("fc2", Linear::new(10), [last]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [last]).unwrap();
    net
}

/// Configuration of a training run.
struct Run {
    plan: &'static str,
    placement: Placement,
    lowering: LowerOptions,
    policy: Policy,
    /// Number of background jobs.
    background: usize,
    checkpoint: bool,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { plan, placement, lowering, policy, background, checkpoint } = self;
        let graphs = if policy.captured_graphs { "in graphs" } else { "by kernels" };
        let checkpoint = if *checkpoint { ", from checkpoint to checkpoint" } else { "" };
        let world = placement.world();
        write!(f, "{plan} on {world} GPUs, {graphs}, {background} background jobs{checkpoint}: {lowering:?}")
    }
}

/// Returns a random list of ranks for each layer.
fn random_placement(net: &LayerGraph, world: usize, random: &mut ChaCha8Rng) -> Placement {
    let mut below = |limit: usize| random.next_u32() as usize % limit;
    let ranks = net.computing_layers().map(|_| {
        let mut left: Vec<usize> = (0..world).collect();
        (0..=below(world)).map(|_| left.swap_remove(below(left.len()))).collect()
    });
    Placement::new(net, world, ranks.collect()).unwrap()
}

/// Returns the placement of a plan that was searched.
fn searched_placement(net: &LayerGraph, world: usize, lowering: &LowerOptions) -> Placement {
    let profile = DeviceModel::named("a100").unwrap().profile(net, &shard_sizes(BATCH, world)).unwrap();
    let link = default_link("a100", world).unwrap();
    let costs = Costs::new(net, &profile, &link);
    let job = Job::new(costs, BATCH, lowering.clone());
    let plan = find_plan(&job, &PlanRequest::new(world, Mode::Burst { amplification: 3.0 })).unwrap();
    plan.training().placement().clone()
}

fn random_run(net: &LayerGraph, world: usize, number: usize) -> Run {
    let mut random = ChaCha8Rng::seed_from_u64((world * 1000 + number) as u64);
    let mut coin = || random.next_u32() % 2 == 0;
    let lowering = LowerOptions::default()
        .with_overlap_all_reduce(coin())
        .with_bucket_bytes(if coin() { 0 } else { 25 << 20 })
        .with_sync_batch_norm(coin())
        .with_micro_batches(if coin() { 1 } else { 2 })
        .with_optimizer(Sgd { momentum: 0.9, weight_decay: 0.01, clip_norm: coin().then_some(1.0) });
    // Every second run has graphs, and every second two background jobs, regardless of the coins.
    let policy = if number % 2 == 0 { Policy::default() } else { Policy::priority() };
    let background = if number / 2 % 2 == 1 { 0 } else { 1 + usize::from(coin()) };
    let checkpoint = coin();
    let (plan, placement) = match number {
        0 => ("data parallelism", Placement::first_ranks(net, world, &vec![world; net.len() - 1]).unwrap()),
        1 => ("a searched plan", searched_placement(net, world, &lowering)),
        _ => ("a random plan", random_placement(net, world, &mut random)),
    };
    Run { plan, placement, lowering, policy, background, checkpoint }
}

/// Trains while the emulator checks the order of accesses. The wait with the number `dropped`, from
/// 1, is left out; none for 0.
fn train(emulator: &Emulator, net: &LayerGraph, run: &Run, dropped: usize) -> Result<(), Error> {
    emulator.reset();
    emulator.set(Setting::Devices, i64::try_from(run.placement.world()).unwrap());
    emulator.set(Setting::RankTimeoutMs, 10_000);
    emulator.set(Setting::OrderCheck, 1);
    emulator.set(Setting::DropWait, i64::try_from(dropped).unwrap());
    let data = Dataset::synthetic_for(net, SAMPLES, 0).unwrap();
    let folder = TempDir::new().unwrap();
    let kept = || CheckpointConfig::new(folder.path()).with_every(CheckpointEvery::Iterations(3));
    let training = LoweredTraining::new(net, run.placement.clone(), BATCH, run.lowering.clone());
    let config = TrainConfig::new(&data, &training)
        .with_length(Length::Epochs(2))
        .with_policy(run.policy)
        .with_background((0..run.background).map(|_| BackgroundConfig::new(net, &data, 4)))
        .with_checkpoint(run.checkpoint.then(kept));
    let trained = train_on_gpus(&config, Duration::from_secs(60), &|_| {})?;
    assert_eq!(trained.epochs.len(), 2, "{run}");
    if run.checkpoint {
        let longer = config.with_length(Length::Epochs(3)).with_checkpoint(Some(kept().with_resume(true)));
        train_on_gpus(&longer, Duration::from_secs(60), &|_| {})?;
    }
    Ok(())
}

fn assert_no_conflicts(world: usize) {
    let name = format!("gpu_order::accesses_to_the_same_memory_are_ordered_on_{world}_gpus");
    on_emulated_gpus(&name, world, |emulator| {
        let net = network();
        for number in 0..plans() {
            let run = random_run(&net, world, number);
            train(emulator, &net, &run, 0).unwrap();
            println!("{run}");
            assert!(emulator.conflicts().is_empty(), "{run}: {:#?}", emulator.conflicts());
            assert!(emulator.misuse().is_empty(), "{run}: {:?}", emulator.misuse());
            assert!(emulator.leaks().is_empty(), "{run}: {:?}", emulator.leaks());
        }
    });
}

#[test]
fn accesses_to_the_same_memory_are_ordered_on_2_gpus() {
    assert_no_conflicts(2);
}

#[test]
fn accesses_to_the_same_memory_are_ordered_on_4_gpus() {
    assert_no_conflicts(4);
}

/// Returns the number of waits that a run has enqueued.
fn waits(emulator: &Emulator) -> usize {
    emulator.log().iter().filter(|line| line.contains(" cuStreamWaitEvent: CUDA_SUCCESS")).count()
}

/// The check detects missing waits: if one is dropped, it finds a conflict, unless something else
/// orders the same work.
#[test]
fn missing_waits_are_detected() {
    on_emulated_gpus("gpu_order::missing_waits_are_detected", 2, |emulator| {
        let net = network();
        let (mut detected, mut redundant, mut others) = (0, 0, Vec::new());
        for number in [0, 2] {
            let run = Run { checkpoint: false, ..random_run(&net, 2, number) };
            train(emulator, &net, &run, 0).unwrap();
            let waits = waits(emulator);
            let tried = max_dropped_waits().min(waits);
            println!("{run}: {tried} of {waits} waits");
            for dropped in (0..tried).map(|place| 1 + (2 * place + 1) * waits / (2 * tried)) {
                match train(emulator, &net, &run, dropped) {
                    // Without the wait, data may be read before it is written.
                    Ok(()) | Err(Error::NotFinite { .. }) => {}
                    Err(error) => panic!("{run}, wait {dropped}: {error}"),
                }
                match (emulator.conflicts().is_empty(), emulator.dropped_wait_is_needed()) {
                    (false, _) => detected += 1,
                    (true, Some(false)) => redundant += 1,
                    (true, orders) => others.push((number, dropped, orders)),
                }
            }
        }
        println!("{detected} dropped waits were detected, {redundant} were not needed, neither: {others:?}");
        // In the first iteration some waits are for memory that was not used yet.
        assert!(detected > 0 && others.len() <= detected / 10, "{detected} detected, and not {others:?}");
    });
}

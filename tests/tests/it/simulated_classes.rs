//! Simulation of classes of equal ranks, and the activity that it reports.

use std::time::Duration;

use collectives::LinkModel;
use deeppool::Error;
use deeppool::costs::{Costs, shard_sizes};
use deeppool::program::{LowerOptions, Placement, RankProgram, Step, lower_for_simulation, lower_training};
use deeppool::simulate::{BackgroundCosts, SimulateOptions, Simulation, contended, simulate};
use deeppool_tests::{divided, reordered, scattered, some_checkpoints};
use layer_engine::Sgd;
use layer_graph::{LayerGraph, zoo};
use layer_profile::DeviceModel;
use proptest::prelude::*;

/// Returns a random placement; with `blocks`, each layer is on the first or the last ranks.
fn placement(network: &LayerGraph, world: usize, seed: u64, blocks: bool) -> Result<Placement, Error> {
    let any = scattered(network, world, seed)?;
    if !blocks {
        return reordered(network, any, seed);
    }
    // Keep the number of ranks of each layer.
    let ranks = any.order().iter().map(|&id| match any.ranks(id).len() {
        count if count % 2 == 0 => (0..count).collect(),
        count => (world - count..world).collect(),
    });
    reordered(network, Placement::new(network, world, ranks.collect())?, seed)
}

/// Checks that times and background rates of a simulation sum to the totals.
fn check_sums(simulation: &Simulation, world: usize) {
    let activity = simulation.activity;
    let all = simulation.iteration * u32::try_from(world).unwrap();
    let sum = activity.active() + activity.idle;
    assert!(sum.abs_diff(all) <= Duration::from_nanos(4), "{sum:?} of {all:?}");
    let rates = simulation.background_by_activity;
    let sum = rates.computing + rates.communicating + rates.idle;
    assert!((sum - simulation.background_samples_per_s).abs() <= 1e-9 * sum, "{rates:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn simulation_of_classes_equals_simulation_of_all_ranks(
        world in 1usize..9,
        batch in 9usize..40,
        seed: u64,
        blocks: bool,
        clip: bool,
        micro_batches in 1usize..3,
        bucket_bytes in prop::sample::select(vec![1, 5_000, 25 << 20]),
        recomputes: bool,
        splits: bool,
    ) {
        for model in ["digits-cnn", "resnet-18"] {
            let network = zoo::model(model).unwrap();
            let sizes = (0..=batch).collect::<Vec<_>>();
            let profile = DeviceModel::named("a100").unwrap().profile(&network, &sizes[1..]).unwrap();
            let link = LinkModel::dgx_a100();
            let costs = Costs::new(&network, &profile, &link);
            let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: clip.then_some(1.0) };
            let checkpoints = if recomputes { some_checkpoints(&network, 3, seed) } else { Vec::new() };
            let lowering = LowerOptions::default()
                .with_optimizer(optimizer)
                .with_bucket_bytes(bucket_bytes)
                .with_micro_batches(micro_batches)
                .with_checkpoints(checkpoints);
            let mut placement = placement(&network, world, seed, blocks).unwrap();
            if splits {
                placement = divided(&network, placement, 1, seed).unwrap();
            }
            let every = lower_training(&network, &placement, batch, &lowering).unwrap();
            let classes = lower_for_simulation(&network, &placement, batch, &lowering).unwrap();
            prop_assert_eq!(&every.collectives, &classes.collectives);
            prop_assert_eq!((every.world(), every.ranks.len()), (world, world));
            prop_assert_eq!(classes.world(), world);
            for class in &classes.ranks {
                for &rank in &class.represented_ranks {
                    let own = &every.ranks[rank];
                    let key = |step: &Step| {
                        let Step { label, after, reads, writes, .. } = step.clone();
                        (label, after, reads, writes)
                    };
                    prop_assert!(own.steps.iter().map(key).eq(class.steps.iter().map(key)));
                    prop_assert_eq!(&own.buffers, &class.buffers);
                }
            }
            let background = BackgroundCosts::new(&costs, 4).unwrap();
            let alone = SimulateOptions::default().with_iterations(3).with_timeline(true);
            let shared = alone.clone().with_background(Some(background));
            let contended = shared.clone().with_device(contended());
            for options in [alone, shared, contended] {
                let simulated = simulate(&every, &costs, &options).unwrap();
                prop_assert_eq!(&simulated, &simulate(&classes, &costs, &options).unwrap());
                check_sums(&simulated, world);
            }
        }
    }
}

#[test]
fn program_for_simulation_has_one_rank_per_class() {
    let network = zoo::model("digits-cnn").unwrap();
    let placement = Placement::first_ranks(&network, 6, &vec![4; network.len() - 1]).unwrap();
    let program = lower_for_simulation(&network, &placement, 8, &LowerOptions::default()).unwrap();
    let classes: Vec<&[usize]> = program.ranks.iter().map(|class| &class.represented_ranks[..]).collect();
    assert_eq!(classes, [&[0, 1, 2, 3][..], &[4, 5][..]]);
    assert!(program.of_rank(4).is_ok());
    assert!(
        program.of_rank(1).unwrap_err().to_string().contains("rank 1 shares the program of another rank")
    );
    assert!(program.of_rank(6).unwrap_err().to_string().contains("no rank 6"));
}

/// In a chain, no rank computes while samples are redistributed.
#[test]
fn activity_equals_profiled_compute_time_and_transfers() {
    let (network, batch) = (zoo::model("vgg16").unwrap(), 32);
    let profile = DeviceModel::named("a100").unwrap().profile(&network, &shard_sizes(batch, 8)).unwrap();
    let link = LinkModel::dgx_a100();
    let costs = Costs::new(&network, &profile, &link);
    let layers = network.len() - 1;
    for narrow in [layers, 20] {
        let gpus: Vec<usize> = (0..layers).map(|layer| if layer < narrow { 8 } else { 1 }).collect();
        let placement = Placement::first_ranks(&network, 8, &gpus).unwrap();
        let program = lower_for_simulation(&network, &placement, batch, &LowerOptions::default()).unwrap();
        let simulation = simulate(&program, &costs, &SimulateOptions::default()).unwrap();
        println!("{:?} in {:?}", simulation.activity, simulation.iteration);
        check_sums(&simulation, 8);
        let of_class = |class: &RankProgram| -> Duration {
            let steps = class.steps.iter().map(|step| costs.compute_time(class, &step.op).unwrap());
            steps.sum::<Duration>() * u32::try_from(class.represented_ranks.len()).unwrap()
        };
        let computed: Duration = program.ranks.iter().map(of_class).sum();
        let apart = simulation.activity.computing.abs_diff(computed);
        assert!(apart < Duration::from_micros(1), "{:?} of {computed:?}", simulation.activity);
        let moves = program.collectives.iter().filter(|collective| collective.label.contains("redistribute"));
        let moving: Duration = moves.map(|collective| costs.collective_time(collective)).sum();
        assert_eq!(moving.is_zero(), narrow == layers);
        assert!(simulation.activity.communicating >= 8 * moving, "{:?}", simulation.activity);
        assert_eq!(simulation.activity.idle.is_zero(), narrow == layers, "{:?}", simulation.activity);
    }
}

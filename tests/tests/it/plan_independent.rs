//! Losses do not depend on the plan, the number of ranks or background jobs.

use deeppool::data::{DataSource, Dataset};
use deeppool::plan::Mode;
use deeppool::program::{LowerOptions, Op, Placement, Step, lower_training, possible_checkpoints};
use deeppool::train::TrainReport;
use deeppool_tests::{Run, in_stretches, planned, scattered};
use layer_engine::{Pass, Sgd};
use layer_graph::zoo::{self, GnmtSize};
use layer_graph::{
    BatchNorm, Conv2d, Dropout, Embedding, LayerGraph, LayerKind, LayerNorm, Linear, MultiHeadAttention,
    PositionEmbedding, Shape, SoftmaxCrossEntropy,
};

pub(crate) const TOLERANCE: f64 = 1e-4;

/// Returns the maximum relative difference between two loss curves.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).abs() / a.abs().max(b.abs())).fold(0.0, f64::max)
}

#[test]
fn digits_cnn_losses_do_not_depend_on_the_plan() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    // 44 iterations per epoch. CI trains five epochs.
    let epochs = std::env::var("DEEPPOOL_EPOCHS").ok().and_then(|epochs| epochs.parse().ok()).unwrap_or(1);
    let run = Run {
        network: &network,
        dataset: &dataset,
        batch: 32,
        epochs,
        lowering: LowerOptions::default(),
        background: None,
    };
    let alone = run.with(&Placement::single(&network).unwrap()).unwrap();
    assert_eq!(alone.losses.len() as u64, 44 * epochs);
    assert!(alone.losses[alone.losses.len() - 1] < 0.5 * alone.losses[0], "the loss does not fall");

    for ranks in 2..=4 {
        let placements = [
            ("data parallel", planned(&network, 32, ranks, Mode::DataParallel)),
            ("loose burst", planned(&network, 32, ranks, Mode::Burst { amplification: 2.0 })),
            ("tight burst", planned(&network, 32, ranks, Mode::Burst { amplification: 1.15 })),
            ("scattered", scattered(&network, ranks, ranks as u64)),
        ];
        for (name, placement) in placements {
            let placement = placement.unwrap();
            // Background jobs are slow on ranks that share cores: test two placements only.
            let collocated = (ranks == 2 && name == "scattered") || (ranks == 4 && name == "tight burst");
            for background in [None, Some(8)].into_iter().take(1 + usize::from(collocated)) {
                let report = Run { background, ..run.clone() }.with(&placement).unwrap();
                let distance = distance(&alone.losses, &report.losses);
                println!("{ranks} ranks, {name}, background {background:?}: {distance:.1e}");
                assert!(distance <= TOLERANCE, "{ranks} ranks, {name}: {distance:.1e}");
                assert_eq!(report.background_samples_per_s > 0.0, background.is_some());
            }
        }
    }
}

#[test]
fn training_is_bitwise_reproducible() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    let run = Run {
        network: &network,
        dataset: &dataset,
        batch: 30,
        epochs: 1,
        lowering: LowerOptions::default(),
        background: None,
    };
    let placement = scattered(&network, 3, 7).unwrap();
    let (a, b) = (run.with(&placement).unwrap(), run.with(&placement).unwrap());
    assert_eq!(a.losses, b.losses);
    assert_eq!(a.epochs[0].test.score().to_bits(), b.epochs[0].test.score().to_bits());
}

#[test]
fn micro_batches_do_not_change_losses() {
    let network = zoo::model("digits-cnn").unwrap();
    let dataset = Dataset::digits().unwrap();
    let lowering = LowerOptions::default();
    let run = Run { network: &network, dataset: &dataset, batch: 32, epochs: 1, lowering, background: None };
    let whole = run.with(&Placement::single(&network).unwrap()).unwrap();
    for (ranks, micro_batches) in [(1, 5), (1, 32), (3, 5)] {
        let placement = scattered(&network, ranks, 1).unwrap();
        let lowering = LowerOptions::default().with_micro_batches(micro_batches);
        let report = Run { lowering, ..run.clone() }.with(&placement).unwrap();
        let distance = distance(&whole.losses, &report.losses);
        println!("{ranks} ranks, {micro_batches} micro-batches: {distance:.1e}");
        assert!(distance <= 1e-6, "{ranks} ranks, {micro_batches} micro-batches: {distance:.1e}");
    }
}

/// Networks with dropout and running statistics are included.
#[test]
fn recomputation_of_activations_is_bitwise_exact() {
    let networks = [zoo::model("digits-cnn").unwrap(), normalised(), language_model()];
    for (index, network) in networks.iter().enumerate() {
        let source = if index == 2 { DataSource::Synthetic { seed: 0 } } else { DataSource::Digits };
        let dataset = Dataset::open(&source, network).unwrap();
        for (ranks, micro_batches, sync_batch_norm) in [(1, 1, false), (3, 1, true), (3, 3, false)] {
            let seed = ranks as u64 + micro_batches as u64;
            let placement = in_stretches(network, ranks, seed).unwrap();
            let lowering = LowerOptions::default()
                .with_micro_batches(micro_batches)
                .with_sync_batch_norm(sync_batch_norm);
            let run = Run { network, dataset: &dataset, batch: 32, epochs: 1, lowering, background: None };
            let kept = run.with(&placement).unwrap();
            let checkpoints = possible_checkpoints(network).into_iter().skip(2).step_by(3);
            let checkpoints: Vec<String> =
                checkpoints.map(|id| network.layer(id).name().to_owned()).collect();
            let lowering = run.lowering.clone().with_checkpoints(checkpoints);
            let program = lower_training(network, &placement, 32, &lowering).unwrap();
            let recomputes = |step: &Step| matches!(step.op, Op::Forward { pass: Pass::Recompute, .. });
            let count =
                program.ranks.iter().flat_map(|rank| &rank.steps).filter(|step| recomputes(step)).count();
            assert!(count > 0 || ranks > 1, "no activation is recomputed");
            let recomputed = Run { lowering, ..run }.with(&placement).unwrap();
            assert_eq!(kept.losses, recomputed.losses, "{} on {ranks} ranks", network.name());
            let accuracy = |report: &TrainReport| report.epochs[0].test.score().to_bits();
            assert_eq!(accuracy(&kept), accuracy(&recomputed), "{} on {ranks} ranks", network.name());
        }
    }
}

/// Returns a network with two batch normalizations.
pub(crate) fn normalised() -> LayerGraph {
    let mut net = LayerGraph::new("normalised", Shape::image(1, 8, 8)).unwrap();
    let input = net.input();
    let x = net.add("norm0", BatchNorm::default(), [input]).unwrap();
    let x = net.add("conv", Conv2d::new(8, 3).padding(1).without_bias(), [x]).unwrap();
    let x = net.add("norm1", BatchNorm::default(), [x]).unwrap();
    let x = net.add("relu", LayerKind::Relu, [x]).unwrap();
    let x = net.add("flatten", LayerKind::Flatten, [x]).unwrap();
    let x = net.add("fc", Linear::new(10), [x]).unwrap();
    net.add("loss", LayerKind::CROSS_ENTROPY, [x]).unwrap();
    net
}

#[test]
fn losses_with_synchronized_batch_norm_and_clipping_do_not_depend_on_the_plan() {
    let network = normalised();
    let dataset = Dataset::digits().unwrap();
    let lowering = LowerOptions::default()
        .with_optimizer(Sgd { momentum: 0.9, weight_decay: 1e-4, clip_norm: Some(0.5) })
        .with_sync_batch_norm(true);
    let run = Run { network: &network, dataset: &dataset, batch: 32, epochs: 1, lowering, background: None };
    let alone = run.with(&Placement::single(&network).unwrap()).unwrap();
    for (ranks, overlap_all_reduce, bucket_bytes) in [(2, true, 1), (3, false, 25 << 20), (4, true, 2000)] {
        for seed in 0..2 {
            let lowering = run
                .lowering
                .clone()
                .with_overlap_all_reduce(overlap_all_reduce)
                .with_bucket_bytes(bucket_bytes);
            let placement = scattered(&network, ranks, seed).unwrap();
            let report = Run { lowering, ..run.clone() }.with(&placement).unwrap();
            let distance = distance(&alone.losses, &report.losses);
            assert!(distance <= TOLERANCE, "{ranks} ranks, seed {seed}: {distance:.1e}");
            let accuracies = [alone.epochs[0].test.score(), report.epochs[0].test.score()];
            assert!((accuracies[0] - accuracies[1]).abs() < 0.01, "{accuracies:?}");
        }
    }
}

#[test]
fn batch_norm_per_shard_changes_losses_but_reaches_the_accuracy() {
    let network = normalised();
    let dataset = Dataset::digits().unwrap();
    let run = Run {
        network: &network,
        dataset: &dataset,
        batch: 32,
        epochs: 2,
        lowering: LowerOptions::default(),
        background: None,
    };
    let alone = run.with(&Placement::single(&network).unwrap()).unwrap();
    let sharded = run.with(&planned(&network, 32, 4, Mode::DataParallel).unwrap()).unwrap();
    assert!(distance(&alone.losses, &sharded.losses) > TOLERANCE);
    assert!(sharded.epochs[1].test.score() > 0.85, "{}", sharded.epochs[1].test.score());
}

/// Returns a transformer of one block whose head shares the weight of the embedding. One of the
/// labels is ignored.
pub(crate) fn language_model() -> LayerGraph {
    let mut net = LayerGraph::new("language", Shape::features(12)).unwrap();
    let tokens = net.add("tokens", Embedding::new(29, 16), [net.input()]).unwrap();
    let start = net.add("positions", PositionEmbedding::new(12), [tokens]).unwrap();
    let x = net.add("norm1", LayerNorm::default(), [start]).unwrap();
    let x = net.add("qkv", Linear::new(48), [x]).unwrap();
    let x = net.add("attention", MultiHeadAttention::new(4, true), [x]).unwrap();
    let x = net.add("dropout", Dropout::new(0.1), [x]).unwrap();
    let x = net.add("add", LayerKind::Add, [x, start]).unwrap();
    let x = net.add("norm2", LayerNorm::default(), [x]).unwrap();
    let x = net.add("fc", Linear::new(16), [x]).unwrap();
    let x = net.add("gelu", LayerKind::GeluTanh, [x]).unwrap();
    let x = net.add_tied("head", Linear::new(29).without_bias(), [x], tokens).unwrap();
    net.add("loss", SoftmaxCrossEntropy::ignoring(2), [x]).unwrap();
    net
}

#[test]
fn losses_of_a_language_model_with_shared_parameters_do_not_depend_on_the_plan() {
    check_sequences(&language_model(), 0.9);
}

/// A translation network of two LSTM stacks with an attention between them.
#[test]
fn losses_of_gnmt_do_not_depend_on_the_plan() {
    let network = zoo::gnmt_of_size(GnmtSize { vocabulary: 29, features: 16, positions: 6 }).unwrap();
    check_sequences(&network, 0.997);
}

/// Trains a network of sequences on one rank and by other plans on several. Its last loss is at
/// most `falls` times the first.
fn check_sequences(network: &LayerGraph, falls: f64) {
    let dataset = Dataset::open(&DataSource::Synthetic { seed: 0 }, network).unwrap();
    let optimizer = Sgd { momentum: 0.9, weight_decay: 0.0, clip_norm: Some(2.0) };
    let lowering = LowerOptions::default().with_optimizer(optimizer);
    let run = Run { network, dataset: &dataset, batch: 32, epochs: 2, lowering, background: None };
    let alone = run.with(&Placement::single(network).unwrap()).unwrap();
    let [first, last] = [alone.losses[0], alone.losses[alone.losses.len() - 1]];
    assert!(last < falls * first, "the loss does not fall: {first} to {last}");
    let burst = planned(network, 32, 2, Mode::Burst { amplification: 2.0 }).unwrap();
    let distance_of_burst = distance(&alone.losses, &run.with(&burst).unwrap().losses);
    assert!(distance_of_burst <= TOLERANCE, "burst plan: {distance_of_burst:.1e}");
    for (ranks, micro_batches, overlap_all_reduce, bucket_bytes) in
        [(2, 5, true, 2000), (3, 3, false, 25 << 20), (4, 1, true, 1)]
    {
        let lowering = run
            .lowering
            .clone()
            .with_overlap_all_reduce(overlap_all_reduce)
            .with_bucket_bytes(bucket_bytes)
            .with_micro_batches(micro_batches);
        let placement = scattered(network, ranks, ranks as u64).unwrap();
        let report = Run { lowering, ..run.clone() }.with(&placement).unwrap();
        let distance = distance(&alone.losses, &report.losses);
        println!("{ranks} ranks, {micro_batches} micro-batches: {distance:.1e}");
        assert!(distance <= TOLERANCE, "{ranks} ranks, {micro_batches} micro-batches: {distance:.1e}");
    }
}
